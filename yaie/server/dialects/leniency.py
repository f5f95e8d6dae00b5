"""What a dialect leaves out of a request: tools, items and blocks of types that mean nothing here.

Agents declare tools that another server would run, and send back what other servers answered. A request
can be answered without these, so they are left out and named in a header; `--strict` refuses them.
"""

from itertools import islice
from typing import Any

from pydantic import AfterValidator, PrivateAttr, WithJsonSchema

from yaie.core.fields import Fields, wrong
from yaie.server.discriminated import kind_of
from yaie.server.lenient.notes import ignored, refuses

OTHER = "other"
"""The tag of what is left out, in a union."""
MOST_TOLD = 32
"""Types of one list that are told. A client could send thousands."""
LEFT_OUT = "Of another type: it is left out, and named in the header x-yaie-ignored."


def others(*known: str) -> WithJsonSchema:
    """For `dict[str, Any]` in a union: the schema of objects of any type but these."""
    kind = {"type": "string", "not": {"enum": [*known]}}
    return WithJsonSchema({
        "type": "object", "description": LEFT_OUT, "properties": {"type": kind}, "required": ["type"],
    })  # fmt: skip


def kind_or_other(
    value: Any, known: frozenset[str], refused: frozenset[str] = frozenset()
) -> str | None:
    """The type of an object if it is known, OTHER if it is left out; for `choice`, which refuses None.
    refused: types that change the answer, which must not be left out."""
    kind = kind_of(value)
    if kind is None or kind in known:
        return kind
    return None if kind in refused or refuses() else OTHER


class Placed(Fields):
    """A member of a list of which others may be left out. It keeps its place."""

    _place: int = PrivateAttr(0)

    @property
    def place(self) -> int:
        """Its index in the list that the client has sent."""
        return self._place

    def put_at(self, place: int) -> None:
        self._place = place


def left_out(where: str) -> AfterValidator:
    """For a list: without its members of other types, each of which is told as WHERE.TYPE."""

    def check(values: list[Any]) -> list[Any]:
        for place, value in enumerate(values):
            if isinstance(value, Placed):
                value.put_at(place)
        kinds = dict.fromkeys(value["type"] for value in values if isinstance(value, dict))
        if not kinds:
            return values
        for kind in islice(kinds, MOST_TOLD):
            ignored(f"{where}.{kind}")
        return [value for value in values if not isinstance(value, dict)]

    return AfterValidator(check)


def without_effect(where: str) -> AfterValidator:
    """For a field that changes nothing here: told, unless it is empty or false."""

    def check(value: Any) -> Any:
        if value:
            if refuses():
                raise wrong("It has no effect here; leave it out.")
            ignored(where)
        return value

    return AfterValidator(check)
