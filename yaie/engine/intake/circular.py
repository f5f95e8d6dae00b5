"""Finds `$ref`s that go round in a circle. No value fits such a schema, and what the compiler or the
matcher says of it tells a person nothing."""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

_CHOICES = ("anyOf", "oneOf")
"""Keywords that leave a way out of a circle, if they have another alternative."""
_INDEX = re.compile(r"[0-9]{1,9}")
"""Of an element of a list. Python refuses to make a number of more than 4,300 digits."""


def circular_ref(schema: Any) -> str | None:
    """A `$ref` that leads back to itself without a property or an item in between; None if none does."""
    done: set[int] = set()
    for start in _objects(schema):
        # Depth first; `path` is what leads to the one that is looked at.
        stack: list[Iterator[tuple[dict[str, Any], str | None]]] = [iter([(start, None)])]
        path: dict[int, str | None] = {}
        while stack:
            one, ref = next(stack[-1], (None, None))
            if one is None:
                stack.pop()
                done.update([path.popitem()[0]] if path else [])
            elif id(one) in path:
                circle = [*[*path.values()][[*path].index(id(one)) + 1 :], ref]
                return next((name for name in circle if name is not None), None)
            elif id(one) not in done:
                path[id(one)] = ref
                stack.append(_same_value(schema, one))
    return None


def _objects(schema: Any) -> Iterator[dict[str, Any]]:
    """Every object in a schema."""
    rest = [schema]
    while rest:
        one = rest.pop()
        if isinstance(one, dict):
            yield one
            rest += one.values()
        elif isinstance(one, list):
            rest += one


def _same_value(schema: Any, one: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str | None]]:
    """The schemas that the value of `one` must fit too, each with the `$ref` that leads there."""
    ref = one.get("$ref")
    if isinstance(target := pointed_at(schema, ref), dict):
        yield target, ref
    for keyword in ("allOf", *_CHOICES):
        several = one.get(keyword)
        if isinstance(several, list) and (keyword == "allOf" or len(several) == 1):
            yield from ((each, None) for each in several if isinstance(each, dict))


def pointed_at(schema: Any, ref: Any) -> Any:
    """What a pointer into this schema (RFC 6901, `#/$defs/name`) names; None if that is nothing."""
    if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
        return None
    place = schema
    for step in unquote(ref[1:]).split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(place, dict):
            place = place.get(step)
        elif isinstance(place, list) and _INDEX.fullmatch(step) and int(step) < len(place):
            place = place[int(step)]
        else:
            return None
    return place
