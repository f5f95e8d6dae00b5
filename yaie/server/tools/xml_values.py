"""Values that stand between tags without quotes: what a schema says they are, and what in JSON."""

import json
from typing import Any

MOST_STEPS = 16
"""From reference to reference, or into alternatives."""

_KINDS: dict[type, str] = {
    str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object",
    type(None): "null",
}  # fmt: skip


def kinds_of(schema: Any, root: dict[str, Any], steps: int = MOST_STEPS) -> frozenset[str]:
    """The types that a schema allows; empty if it does not tell, and any will do.

    root: the whole schema, which references begin at.
    """
    if not isinstance(schema, dict) or not steps:
        return frozenset()
    if "$ref" in schema:
        return kinds_of(referred(schema["$ref"], root), root, steps - 1)
    named = schema.get("type")
    if isinstance(named, str):
        return frozenset([named])
    if isinstance(named, list):
        return frozenset(kind for kind in named if isinstance(kind, str))
    if isinstance(schema.get("enum"), list):
        return frozenset(_KINDS[type(value)] for value in schema["enum"])
    if "const" in schema:
        return frozenset([_KINDS[type(schema["const"])]])
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            each = [kinds_of(inner, root, steps - 1) for inner in schema[key][:MOST_STEPS]]
            return frozenset().union(*each) if all(each) else frozenset()
    if isinstance(schema.get("allOf"), list):
        each = [kinds_of(inner, root, steps - 1) for inner in schema["allOf"][:MOST_STEPS]]
        return next((kinds for kinds in each if kinds), frozenset())
    return frozenset()


def property_of(schema: dict[str, Any], name: str) -> Any:
    """The schema of a property; None if there is none."""
    place = referred(schema["$ref"], schema) if "$ref" in schema else schema
    properties = place.get("properties") if isinstance(place, dict) else None
    return properties.get(name) if isinstance(properties, dict) else None


def referred(reference: Any, root: dict[str, Any]) -> Any:
    """What `#/$defs/X` stands for; None if it stands for nothing."""
    place: Any = root
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return root if reference == "#" else None
    for key in reference[2:].split("/"):
        if not isinstance(place, dict):
            return None
        place = place.get(key.replace("~1", "/").replace("~0", "~"))
    return place


def as_json(text: str, kinds: frozenset[str]) -> str:
    """A value in JSON: as it was written, if that is JSON of one of these kinds, else as a string.

    kinds: of `kinds_of`. Python's words for true, false and null count as those.
    """
    solid = text.strip()
    word = {"none": "null"}.get(solid.lower(), solid.lower())
    if (word in ("true", "false") and _fits("boolean", kinds)) or (
        word == "null" and _fits("null", kinds)
    ):
        return word
    try:
        value = json.loads(solid, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return quoted(text)
    kind = _KINDS[type(value)]
    if isinstance(value, float) and value.is_integer() and "integer" in kinds:
        kind = "integer"
    return solid if kind != "string" and _fits(kind, kinds) else quoted(text)


def quoted(text: str) -> str:
    """A JSON string. Each character is written by itself, so pieces can be joined."""
    return json.dumps(text, ensure_ascii=False)


def _fits(kind: str, kinds: frozenset[str]) -> bool:
    return not kinds or kind in kinds or (kind == "integer" and "number" in kinds)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
