"""Schemas of the subset, and documents of them, drawn at random.

Every draw has its simplest outcome first or lowest. So where Hypothesis is the source of the draws, it
makes a schema that fails as small as it can.
"""

import json
import random
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]
LETTERS = 'ab é"\\\n\t/😀中u0{}[]:,'
BLANKS = ("", "", "", " ", "  ", "\n", "\n  ", "\r\n\t")


def happens(rng: random.Random, percent: int) -> bool:
    """True in so many of a hundred cases."""
    return rng.randrange(100) >= 100 - percent


class SchemaMaker:
    """Draws schemas; each has a value that fits it."""

    def __init__(self, rng: random.Random, *, plain: bool = False) -> None:
        """plain: no strings and numbers but constants, so that what is made of them does not matter."""
        self._rng = rng
        self._plain = plain
        self._definitions: Json = {}

    def schema(self) -> Json:
        """A whole schema."""
        self._definitions = {}
        made = self._drawn(self._rng.choice([1, 2, 2, 3]))
        if self._definitions:
            made = {**made, "$defs": self._definitions}
        return made

    def _drawn(self, depth: int) -> Json:
        rng = self._rng
        kinds = ["value", "value", "enum"]
        kinds += ["object", "object", "array", "any", "types", "ref"] * (depth > 0)
        made: Json = getattr(self, "_" + rng.choice(kinds))(depth)
        if happens(rng, 10):
            made["description"] = "what it is"
        return made

    def _value(self, depth: int) -> Json:
        if self._plain:
            return {"type": self._rng.choice(["boolean", "null"])}
        kind = self._rng.choice(["string", "string", "integer", "number", "boolean", "null"])
        made: Json = {"type": kind}
        if kind == "string" and happens(self._rng, 50):
            least = self._rng.choice([0, 0, 1, 3])
            made["minLength"] = least
            if happens(self._rng, 70):
                made["maxLength"] = least + self._rng.choice([0, 1, 5])
        return made

    def _enum(self, depth: int) -> Json:
        pool: list[Any] = [
            None,
            True,
            "a",
            "b c",
            "gr\u00fcn",
            3,
            -2.5,
            [],
            [1, "x"],
            {"k": [None]},
        ]
        values = self._rng.sample(pool, self._rng.randint(1, 3))
        if happens(self._rng, 30):
            return {"const": values[0]}
        made: Json = {"enum": values}
        if happens(self._rng, 20):
            return {"type": "string", "enum": [*values, "s"]}
        return made

    def _object(self, depth: int) -> Json:
        names = self._rng.sample(
            ["a", "b", "name", "é", 'q"', "id", "x y"], self._rng.randint(0, 4)
        )
        return {
            "type": "object",
            "properties": {name: self._drawn(depth - 1) for name in names},
            "required": [name for name in names if happens(self._rng, 50)],
            "additionalProperties": False,
        }

    def _array(self, depth: int) -> Json:
        made: Json = {"type": "array", "items": self._drawn(depth - 1)}
        least = self._rng.choice([0, 0, 0, 1, 2])
        if least or happens(self._rng, 30):
            made["minItems"] = least
        if happens(self._rng, 60):
            made["maxItems"] = least + self._rng.choice([0, 1, 2])
        return made

    def _any(self, depth: int) -> Json:
        return {"anyOf": [self._drawn(depth - 1) for _ in range(self._rng.randint(1, 3))]}

    def _types(self, depth: int) -> Json:
        kinds = ["boolean", "null"] if self._plain else ["string", "integer", "boolean", "null"]
        return {"type": self._rng.sample(kinds, 2)}

    def _ref(self, depth: int) -> Json:
        whole = [name for name, made in self._definitions.items() if made]
        name = self._rng.choice([*whole, ""])
        if not name:
            name = f"d/{len(self._definitions)}"
            self._definitions[name] = {}  # its number is taken
            self._definitions[name] = self._drawn(depth - 1)
        return {"$ref": "#/$defs/" + name.replace("/", "~1")}


class DocumentMaker:
    """Draws documents of a schema of the subset, written with blanks where they may be."""

    def __init__(self, root: Json, rng: random.Random) -> None:
        self._root = root
        self._rng = rng

    def document(self) -> str:
        """A whole document."""
        return "".join(self._of(self._root))

    def _of(self, schema: Json) -> Iterator[str]:
        rng = self._rng
        if "$ref" in schema:
            name = schema["$ref"].removeprefix("#/$defs/").replace("~1", "/")
            yield from self._of(self._root["$defs"][name])
        elif "anyOf" in schema:
            yield from self._of(rng.choice(schema["anyOf"]))
        elif "enum" in schema or "const" in schema:
            values = schema.get("enum", [schema.get("const")])
            if schema.get("type") == "string":
                values = [value for value in values if isinstance(value, str)]
            yield from self._constant(rng.choice(values))
        else:
            types = schema["type"]
            kind = types if isinstance(types, str) else rng.choice(types)
            yield from getattr(self, "_" + kind)(schema)

    def _constant(self, value: Any) -> Iterator[str]:
        if isinstance(value, list):
            yield from self._listed("[", [self._constant(item) for item in value], "]")
        elif isinstance(value, dict):
            pairs = [self._pair(name, self._constant(inner)) for name, inner in value.items()]
            yield from self._listed("{", pairs, "}")
        else:
            yield json.dumps(value, ensure_ascii=False)

    def _pair(self, name: str, value: Iterator[str]) -> Iterator[str]:
        yield from (json.dumps(name, ensure_ascii=False), self._blank(), ":", self._blank())
        yield from value

    def _listed(self, begin: str, items: list[Iterator[str]], end: str) -> Iterator[str]:
        yield from (begin, self._blank())
        for index, item in enumerate(items):
            if index:
                yield from (",", self._blank())
            yield from item
            yield self._blank()
        yield end

    def _blank(self) -> str:
        return self._rng.choice(BLANKS)

    def _object(self, schema: Json) -> Iterator[str]:
        kept = [
            (name, inner)
            for name, inner in schema["properties"].items()
            if name in schema["required"] or happens(self._rng, 50)
        ]
        yield from self._listed(
            "{", [self._pair(name, self._of(inner)) for name, inner in kept], "}"
        )

    def _array(self, schema: Json) -> Iterator[str]:
        least = schema.get("minItems", 0)
        count = self._rng.randint(least, schema.get("maxItems", least + 3))
        yield from self._listed("[", [self._of(schema["items"]) for _ in range(count)], "]")

    def _string(self, schema: Json) -> Iterator[str]:
        least = schema.get("minLength", 0)
        count = self._rng.randint(least, schema.get("maxLength", least + 4))
        text = "".join(self._rng.choice(LETTERS) for _ in range(count))
        yield json.dumps(text, ensure_ascii=happens(self._rng, 30))

    def _integer(self, schema: Json) -> Iterator[str]:
        yield str(self._rng.choice([0, 7, -3, 120, 10**12]))

    def _number(self, schema: Json) -> Iterator[str]:
        yield self._rng.choice(["0", "-0.5", "12.50", "1e5", "2.5E-3", "-7"])

    def _boolean(self, schema: Json) -> Iterator[str]:
        yield self._rng.choice(["true", "false"])

    def _null(self, schema: Json) -> Iterator[str]:
        yield "null"


def spoiled(text: str, rng: random.Random) -> str:
    """The text with a letter or two left out, doubled, moved, or replaced."""
    letters = list(text)
    for _ in range(rng.choice([1, 1, 2])):
        at = rng.randrange(len(letters) + 1)
        change = rng.choice(["drop", "double", "put", "swap"])
        if change == "put" or at >= len(letters) - 1:
            letters.insert(at, rng.choice('{}[],:" 0a1-.'))
        elif change == "drop":
            del letters[at]
        elif change == "double":
            letters.insert(at, letters[at])
        else:
            letters[at], letters[at + 1] = letters[at + 1], letters[at]
    return "".join(letters)
