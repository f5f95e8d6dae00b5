"""Reads a body as what its endpoint takes, and leaves out what that does not know.

What is unknown at which place only the type itself can say. So a body is validated, what was complained
of as unknown is taken out, and so again: a name at once in all elements of a list that are of one kind.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from importlib import import_module
from typing import Any, get_args

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, TypeAdapter, ValidationError

from yaie.server.lenient.declared import without_hosted
from yaie.server.lenient.fields import Dialect
from yaie.server.lenient.history import mended
from yaie.server.lenient.notes import ignored, refuses
from yaie.server.lenient.top import TOUCHED, rewritten

ROUNDS = 12
"""How often a body is validated at most. What is still unknown then is refused."""
MOST_UNKNOWN = 256
"""Names in one object, more than any type knows. Where there are more, the first is complained of."""
KINDS = ("type", "role")
"""What tells elements of one list apart."""

EXACT = ("chat", "text")
"""Dialects whose types refuse whatever would be changed in a field or left out of it."""

Way = tuple[str | int, ...]


@cache
def adapter(kind: str) -> TypeAdapter[Any]:
    """Of a type by its name, "module:name"."""
    return TypeAdapter(_type(kind))


def validated(body: Any, kind: str, dialect: Dialect | None) -> Any:
    """The value of a body as a type. dialect: None where nothing but the type itself counts. Raises
    ValidationError, RequestValidationError, or what a validator raises."""
    if dialect is not None and isinstance(body, dict):
        rewritten(body, dialect, known_names(kind))
        if dialect in ("chat", "tokenize"):
            mended(body.get("messages"))
            if "tools" in body:
                body["tools"] = without_hosted(body["tools"])
    for _ in range(ROUNDS if dialect is not None else 0):
        try:
            return _as_type(body, kind)
        except (ValidationError, RequestValidationError) as error:
            if not _leave_out(body, _spare(error)):
                raise
    return _as_type(body, kind)


@cache
def known_names(kind: str) -> frozenset[str]:
    """Of the fields at the top."""
    return frozenset(_names(_type(kind)))


@cache
def untouched_names(kind: str, dialect: Dialect | None) -> frozenset[str]:
    """Of those, the names of fields that are left as they are where the type takes them: a body with no
    others, and without a null, is wrong, or right as it is. None in dialects whose types leave it to
    what comes later to look into a field."""
    return known_names(kind) - TOUCHED if dialect in EXACT else frozenset()


def _type(kind: str) -> Any:
    module, _, name = kind.partition(":")
    return getattr(import_module(module), name)


def _names(type_: Any) -> Iterator[str]:
    if isinstance(type_, type) and issubclass(type_, BaseModel):
        for name, field in type_.model_fields.items():
            yield field.alias or name
    else:
        for option in get_args(type_):
            yield from _names(option)


def _as_type(body: Any, kind: str) -> Any:
    return adapter(kind).validate_python(body, from_attributes=True)


def _spare(error: ValidationError | RequestValidationError) -> list[Way]:
    """Ways to what the request can do without; none if the first complaint is of something else."""
    if isinstance(error, ValidationError):
        faults: Sequence[Any] = error.errors(include_url=False)
        ways = [fault["loc"] for fault in faults]
    else:
        faults = error.errors()
        ways = [fault["loc"][1:] for fault in faults]
    if not _is_spare(faults[0], ways[0]):
        return []
    spare = [way for fault, way in zip(faults, ways, strict=True) if _is_spare(fault, way)]
    in_one_object = Counter(way[:-1] for way in spare)
    return spare if max(in_one_object.values()) <= MOST_UNKNOWN else []


def _is_spare(fault: Any, way: Way) -> bool:
    """A null means that a field is absent. What is unknown at the top has its verdict already: if it is
    still there it is not to be ignored."""
    if fault["type"] == "extra_forbidden":
        return len(way) > 1 and not refuses()
    return len(way) > 0 and fault["input"] is None


def _leave_out(body: Any, ways: Collection[Way]) -> bool:
    """Whether anything was."""
    was_there = False
    for way in ways:
        *places, name = way
        for parent in _alike([body], places):
            if isinstance(parent, dict) and name in parent:
                was_there = True
                if parent.pop(name) is not None:
                    ignored(_written(way))
    return was_there


def _alike(values: list[Any], places: Sequence[str | int]) -> list[Any]:
    """What lies at the end of a way, in every element of the lists on it that is of the same kind."""
    for place in places:
        if isinstance(place, str):
            values = [it[place] for it in values if isinstance(it, dict) and place in it]
        else:
            values = [
                it
                for listed in values
                if isinstance(listed, list) and place < len(listed)
                for it in listed
                if _kind(it) == _kind(listed[place])
            ]
    return values


def _kind(value: Any) -> Any:
    return [value.get(name) for name in KINDS] if isinstance(value, dict) else None


def _written(way: Way) -> str:
    steps = ("[]" if isinstance(step, int) else f".{step}" for step in way)
    return "".join(steps).removeprefix(".")
