"""Values that stand between tags without quotes: what a schema says they are, and what in JSON."""

import json
import math
from collections import Counter
from typing import Any

from yaie.engine.input.grammars.schema_limits import pointed_at

_KINDS: dict[type, str] = {
    str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object",
    type(None): "null",
}  # fmt: skip
_ANY = frozenset(_KINDS.values())

Json = dict[str, Any]


class Kinds:
    """The types that each of the schemas within a root allows.

    A schema is looked at once, however many references lead to it and however often it is asked for:
    clients write schemas of which every alternative leads to sixteen others, and each of them back.
    num_visited: schemas that were looked at.
    """

    def __init__(self, root: Any) -> None:
        """root: the whole schema, which references begin at. It must not change."""
        self._root = root
        self._allowed: dict[int, set[str]] = {}  # by the id of a schema
        self._asked: list[Any] = []  # they must live on, or others may get their ids
        self.num_visited = 0

    def of(self, schema: Any) -> frozenset[str]:
        """The types that a schema allows; empty if it does not tell, and any will do."""
        if not isinstance(schema, dict):
            return frozenset()
        if id(schema) not in self._allowed:
            self._asked.append(schema)
            self._learn(schema)
        allowed = self._allowed[id(schema)]
        if allowed == _ANY:  # and none where it leads back to itself, or says two things at once
            return frozenset()
        return frozenset(allowed - {"integer"} if "number" in allowed else allowed)

    def _learn(self, schema: Json) -> None:
        """Find out about a schema and all that its types depend on.

        These depend on each other in circles, so a schema begins without types and tells those that
        depend on it of each one that it gains: seven times at most, since it never loses one.
        """
        found: dict[int, tuple[frozenset[str], int, list[Any]]] = {}
        rest: list[Json] = [schema]
        while rest:
            one = rest.pop()
            if id(one) not in found and id(one) not in self._allowed:
                self.num_visited += 1
                found[id(one)] = _, _, inner = _told_by(one, self._root)
                rest += [it for it in inner if isinstance(it, dict)]
        dependents: dict[int, list[int]] = {}
        gained: list[tuple[int, str]] = []  # of schemas by id
        counts: Counter[tuple[int, str]] = Counter()

        def count(one: int, kind: str) -> None:
            counts[one, kind] += 1
            if counts[one, kind] == found[one][1]:
                gained.append((one, kind))

        for one_id, (own, needed, _) in found.items():
            self._allowed[one_id] = set()
            gained += [(one_id, kind) for kind in own] if needed == 0 else []
        for one_id, (_, _, inner) in found.items():
            for it in inner:
                if isinstance(it, dict) and id(it) in found:
                    dependents.setdefault(id(it), []).append(one_id)
                else:
                    for kind in self._allowed[id(it)] if isinstance(it, dict) else _ANY:
                        count(one_id, kind)
        while gained:
            one_id, kind = gained.pop()
            self._allowed[one_id].add(kind)
            for dependent in dependents.get(one_id, ()):
                count(dependent, kind)


def _told_by(one: Json, root: Any) -> tuple[frozenset[str], int, list[Any]]:
    """What a schema's types are told by: (by itself, how many of the others must allow one, others)."""
    if "$ref" in one:
        return frozenset(), 1, [pointed_at(root, one["$ref"])]
    named = one.get("type")
    if isinstance(named, str | list):
        names = [named] if isinstance(named, str) else [it for it in named if isinstance(it, str)]
        return _with_integers(_ANY.intersection(names) or _ANY), 0, []
    if isinstance(one.get("enum"), list):
        return _with_integers(frozenset(_KINDS[type(value)] for value in one["enum"])), 0, []
    if "const" in one:
        return _with_integers(frozenset([_KINDS[type(one["const"])]])), 0, []
    for keyword in ("anyOf", "oneOf", "allOf"):
        several = one.get(keyword)
        if isinstance(several, list) and several:
            return frozenset(), len(several) if keyword == "allOf" else 1, several
    return _ANY, 0, []


def _with_integers(kinds: frozenset[str]) -> frozenset[str]:
    """An integer is a number."""
    return kinds | {"integer"} if "number" in kinds else kinds


def property_of(schema: dict[str, Any], name: str) -> Any:
    """The schema of a property; None if there is none."""
    place = pointed_at(schema, schema["$ref"]) if "$ref" in schema else schema
    properties = place.get("properties") if isinstance(place, dict) else None
    return properties.get(name) if isinstance(properties, dict) else None


def as_json(text: str, kinds: frozenset[str]) -> str:
    """A value in JSON: as it was written, if that is JSON of one of these kinds, else as a string.

    kinds: of `Kinds.of`. Python's words for true, false and null count as those.
    """
    solid = text.strip()
    word = {"none": "null"}.get(solid.lower(), solid.lower())
    if (word in ("true", "false") and _fits("boolean", kinds)) or (
        word == "null" and _fits("null", kinds)
    ):
        return word
    try:
        value = json.loads(solid, parse_constant=_refuse, parse_float=_finite)
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


def _finite(digits: str) -> float:
    """1e999 is JSON, and a number that nobody can read."""
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits} is too large")
    return number


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
