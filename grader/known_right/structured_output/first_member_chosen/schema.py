"""Which property is written first is one choice; counted items are written out; an enum of plain values
is a trie of their bytes."""

import json
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any
from urllib.parse import unquote

from yaie.core.errors import UnsupportedSchemaError
from yaie.core.grammar import Choice, Grammar, Repeat, choice, concat, optional, text

from .json_text import WHITESPACE, spaced
from .values import constant, integer, number, string

Json = dict[str, Any]

SILENT = frozenset(
    ("title", "description", "default", "examples", "$defs", "definitions", "$schema", "$comment")
)
"""Words that say nothing of the value."""
WORDS = {
    "object": frozenset(("properties", "required", "additionalProperties")),
    "array": frozenset(("items", "minItems", "maxItems")),
    "string": frozenset(("minLength", "maxLength")),
    "integer": frozenset[str](),
    "number": frozenset[str](),
    "boolean": frozenset[str](),
    "null": frozenset[str](),
}
"""For each type what else its schema may say."""


MOST_COUNT = 64
"""Of characters or items that are counted: each count is a state, and each state a mask."""


def schema_grammar(schema: Any) -> Grammar:
    """See `yaie.core.contracts.constraining.SchemaGrammar`."""
    return SchemaReader(schema).read(schema)


class SchemaReader:
    """Reads one schema and those within it."""

    def __init__(self, root: Any) -> None:
        """root: the whole schema, which references lead into."""
        self._root = root
        self._made: dict[str, Grammar | None] = {}  # by reference; None while it is being read

    def read(self, schema: Any) -> Grammar:
        """The grammar of a schema within the root. Raises UnsupportedSchemaError."""
        if not isinstance(schema, dict):
            raise UnsupportedSchemaError(str(schema))
        words = schema.keys() - SILENT
        readers: dict[str, Callable[[Json], Grammar]] = {
            "$ref": self._reference,
            "anyOf": self._any_of,
            "enum": self._enum,
            "const": self._enum,
        }
        for keyword, reader in readers.items():
            if keyword in words:
                _refuse(words - {keyword} - ({"type"} if reader == self._enum else set()))
                return reader(schema)
        types = _types(schema) if "type" in schema else []
        _refuse(words - {"type"}.union(*(WORDS[name] for name in types)))
        if not types:
            raise UnsupportedSchemaError("a schema without a type")
        return choice(self._of_type(name, schema) for name in types)

    def _of_type(self, name: str, schema: Json) -> Grammar:
        """The grammar of one type of a schema."""
        if name == "object":
            return self._object(schema)
        if name == "array":
            return self._array(schema)
        if name == "string":
            return string(*_limits(schema, "minLength", "maxLength"))
        values = {"integer": integer, "number": number, "null": lambda: constant(None)}
        values["boolean"] = lambda: Choice((constant(True), constant(False)))
        return values[name]()

    def _enum(self, schema: Json) -> Grammar:
        """The constants of `enum`, or the one of `const`. With a `type`, those that are of it.

        Raises UnsupportedSchemaError, with the keyword, if none is or if `enum` is no list.
        """
        keyword = "enum" if "enum" in schema else "const"
        values = schema["enum"] if keyword == "enum" else [schema["const"]]
        if not isinstance(values, list):
            raise UnsupportedSchemaError(keyword)
        if "type" in schema:
            types = _types(schema)
            values = [value for value in values if any(is_of_type(value, name) for name in types)]
        if not values:
            raise UnsupportedSchemaError(keyword)
        made = [constant(value) for value in values]
        plain = [value for value in values if not isinstance(value, list | dict)]
        if len(plain) < len(values):
            return choice(made)
        written = {json.dumps(value, ensure_ascii=False).encode() for value in plain}
        return _trie(sorted(written))

    def _any_of(self, schema: Json) -> Grammar:
        """Any one of the schemas in `anyOf`. Raises UnsupportedSchemaError if there is none."""
        if not isinstance(schema["anyOf"], list) or not schema["anyOf"]:
            raise UnsupportedSchemaError("anyOf")
        return choice(self.read(option) for option in schema["anyOf"])

    def _reference(self, schema: Json) -> Grammar:
        """The grammar of the schema that `$ref` names, read once however often it is named.

        Raises UnsupportedSchemaError("$ref") for one that leads back to itself: no regular language has
        values in values without end.
        """
        ref = schema["$ref"]
        target = _target(self._root, ref)
        if ref not in self._made:
            self._made[ref] = None
            self._made[ref] = self.read(target)
        grammar = self._made[ref]
        if grammar is None:
            raise UnsupportedSchemaError("$ref")
        return grammar

    def _object(self, schema: Json) -> Grammar:
        """`{`, the properties in the order of the schema, `}`. A comma is between two of them, and
        none after the last; those that are not required may be left out.

        `additionalProperties` must be false, and what is required must be among the properties.
        The grammar grows with the number of properties, not with that of their subsets.
        """
        properties, required = _properties(schema)
        rest: Grammar = WHITESPACE  # something was written before
        firsts: list[Grammar] = [concat()]
        for name in reversed(properties):
            member = spaced(constant(name), text(b":"), self.read(properties[name]))
            if name in required:
                firsts.clear()
            firsts.append(concat(member, rest))
            again = concat(WHITESPACE, text(b","), WHITESPACE, member)
            rest = concat(again if name in required else optional(again), rest)
        return concat(text(b"{"), WHITESPACE, choice(firsts), text(b"}"))

    def _array(self, schema: Json) -> Grammar:
        """`[`, minItems to maxItems items with commas between them, `]`. `items` must be there."""
        if "items" not in schema:
            raise UnsupportedSchemaError("items")
        least, most = _limits(schema, "minItems", "maxItems")
        item = self.read(schema["items"])
        more = concat(WHITESPACE, text(b","), WHITESPACE, item)
        if most is None:
            tail: Grammar = Repeat(more, 0, None)
        else:
            tail = concat()
            for _ in range(max(most - max(least, 1), 0)):
                tail = optional(concat(more, tail))
        items = concat(item, *[more] * (least - 1), tail, WHITESPACE)
        if most == 0:
            items = concat()
        inside = items if least else choice((concat(), items))
        return concat(text(b"["), WHITESPACE, inside, text(b"]"))


def _trie(words: list[bytes]) -> Grammar:
    """Any of these words, none of which begins another one but where it ends."""
    options: list[Grammar] = []
    for first, group in groupby(words, key=lambda word: word[:1]):
        rests = [word[1:] for word in group]
        options.append(concat(text(first), _trie(rests)) if first else concat())
    return choice(options)


def is_of_type(value: Any, name: str) -> bool:
    """Whether a value of JSON is of a type. True and False are no numbers; 2.0 is an integer."""
    if isinstance(value, bool) or value is None:
        return name == ("null" if value is None else "boolean")
    if name == "integer":
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    kinds: dict[str, Any] = {"object": dict, "array": list, "string": str, "number": (int, float)}
    return name in kinds and isinstance(value, kinds[name])


def _types(schema: Json) -> list[str]:
    """The names in `type`, of which there is at least one."""
    found = schema["type"]
    names: list[Any] = found if isinstance(found, list) else [found]
    if not names or not all(isinstance(name, str) and name in WORDS for name in names):
        raise UnsupportedSchemaError("type")
    return names


def _refuse(words: Iterable[str]) -> None:
    for keyword in sorted(words):
        raise UnsupportedSchemaError(keyword)


def _limits(schema: Json, least: str, most: str) -> tuple[int, int | None]:
    """(least, most) by these keywords; most is None if nothing is said."""
    limits = (schema.get(least, 0), schema.get(most))
    for keyword, limit in zip((least, most), limits, strict=True):
        if keyword in schema and (type(limit) is not int or not 0 <= limit <= MOST_COUNT):
            raise UnsupportedSchemaError(keyword)
    if limits[1] is not None and limits[1] < limits[0]:
        raise UnsupportedSchemaError(most)
    return limits


def _properties(schema: Json) -> tuple[Json, frozenset[str]]:
    """(properties, names of the required ones) of an object."""
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if schema.get("additionalProperties") is not False:
        raise UnsupportedSchemaError("additionalProperties")
    if not isinstance(properties, dict):
        raise UnsupportedSchemaError("properties")
    if not isinstance(required, list) or not all(
        isinstance(name, str) and name in properties for name in required
    ):
        raise UnsupportedSchemaError("required")
    return properties, frozenset(required)


def _target(root: Any, ref: Any) -> Any:
    """What `#/$defs/name` leads to (RFC 6901). Raises UnsupportedSchemaError if that is nothing."""
    found = root
    if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
        raise UnsupportedSchemaError("$ref")
    for name in ref.split("/")[1:]:
        name = unquote(name).replace("~1", "/").replace("~0", "~")
        if not isinstance(found, dict) or name not in found:
            raise UnsupportedSchemaError("$ref")
        found = found[name]
    return found
