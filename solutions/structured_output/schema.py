"""From a JSON schema to a grammar. Called once for a new schema; `automaton.py` goes on from there."""

from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import unquote

from yaie.core.errors import UnsupportedSchemaError
from yaie.core.grammar import Choice, Grammar, Repeat, choice, concat, optional, text

from .json_text import WHITESPACE, spaced
from .values import constant, enclosed, integer, number, string

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

    # ANCHOR: enum
    def _enum(self, schema: Json) -> Grammar:
        """The constants of `enum`, or the one of `const`. With a `type`, those that are of it.

        Raises UnsupportedSchemaError, with the keyword, if none is or if `enum` is no list.
        """
        # BEGIN SOLUTION 21.2
        keyword = "enum" if "enum" in schema else "const"
        values = schema["enum"] if keyword == "enum" else [schema["const"]]
        if not isinstance(values, list):
            raise UnsupportedSchemaError(keyword)
        if "type" in schema:
            types = _types(schema)
            values = [value for value in values if any(is_of_type(value, name) for name in types)]
        if not values:
            raise UnsupportedSchemaError(keyword)
        return choice(constant(value) for value in values)
        # END SOLUTION

    # ANCHOR_END: enum

    # ANCHOR: any_of
    def _any_of(self, schema: Json) -> Grammar:
        """Any one of the schemas in `anyOf`. Raises UnsupportedSchemaError if there is none."""
        # BEGIN SOLUTION 21.2
        if not isinstance(schema["anyOf"], list) or not schema["anyOf"]:
            raise UnsupportedSchemaError("anyOf")
        return choice(self.read(option) for option in schema["anyOf"])
        # END SOLUTION

    def _reference(self, schema: Json) -> Grammar:
        """The grammar of the schema that `$ref` names, read once however often it is named.

        Raises UnsupportedSchemaError("$ref") for one that leads back to itself: no regular language has
        values in values without end.
        """
        # BEGIN SOLUTION 21.2
        ref = schema["$ref"]
        target = _target(self._root, ref)
        if ref not in self._made:
            self._made[ref] = None
            self._made[ref] = self.read(target)
        grammar = self._made[ref]
        if grammar is None:
            raise UnsupportedSchemaError("$ref")
        return grammar
        # END SOLUTION

    # ANCHOR_END: any_of

    # ANCHOR: object
    def _object(self, schema: Json) -> Grammar:
        """`{`, the properties in the order of the schema, `}`. A comma is between two of them, and
        none after the last; those that are not required may be left out.

        `additionalProperties` must be false, and what is required must be among the properties.
        The grammar grows with the number of properties, not with that of their subsets.
        """
        # BEGIN SOLUTION 21.2
        properties, required = _properties(schema)
        first: Grammar = concat()  # nothing has been written yet
        after: Grammar = WHITESPACE  # something has
        for name, inner in reversed(properties.items()):
            member = spaced(constant(name), text(b":"), self.read(inner))
            begun = concat(member, after)
            behind = concat(WHITESPACE, text(b","), WHITESPACE, member)
            if name in required:
                first, after = begun, concat(behind, after)
            else:
                first, after = Choice((begun, first)), concat(optional(behind), after)
        return concat(text(b"{"), WHITESPACE, first, text(b"}"))
        # END SOLUTION

    # ANCHOR_END: object

    # ANCHOR: array
    def _array(self, schema: Json) -> Grammar:
        """`[`, minItems to maxItems items with commas between them, `]`. `items` must be there."""
        # BEGIN SOLUTION 21.2
        if "items" not in schema:
            raise UnsupportedSchemaError("items")
        least, most = _limits(schema, "minItems", "maxItems")
        item = self.read(schema["items"])
        if most == 0:
            return enclosed(b"[", [], b"]")
        more = concat(WHITESPACE, text(b","), WHITESPACE, item)
        rest = Repeat(more, max(0, least - 1), None if most is None else most - 1)
        items = concat(item, rest, WHITESPACE)
        return concat(text(b"["), WHITESPACE, items if least else optional(items), text(b"]"))
        # END SOLUTION

    # ANCHOR_END: array


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
