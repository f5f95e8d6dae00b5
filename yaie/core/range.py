"""`Range`: what one number of a request may be, and how a wrong one is shown."""

import math
import sys
from dataclasses import dataclass
from typing import Any

from yaie.core.errors import InvalidRequestError

LARGEST = sys.float_info.max
"""Comparing with it tells NaN, infinity and integers that no float can hold from numbers."""
MAX_SHOWN = 40
"""Characters of a client's value in a message."""


@dataclass(frozen=True, slots=True)
class Range:
    """What one number may be.

    name: the key in RANGES. fields: where it stands in bodies, if not under its name. low, high: both
    belong to the range, unless `above` says that `low` does not. hole: an integer between them that does
    not belong to it either.
    """

    name: str
    low: float
    high: float
    unit: str
    meaning: str
    fields: tuple[str, ...] = ()
    above: bool = False
    hole: int | None = None

    @property
    def bounds(self) -> tuple[float, float, int | None]:
        """The smallest and the largest number that belong to it, and what between them does not."""
        low = math.nextafter(self.low, math.inf) if self.above else self.low
        return low, self.high, self.hole

    def holds(self, value: float) -> bool:
        """Whether it is in the range. NaN is in none."""
        low, high, hole = self.bounds
        return low <= value <= high and value != hole

    def require(self, value: float, param: str, what: str = "") -> None:
        """Raise InvalidRequestError unless it is in the range. what: which of the numbers of `param` it
        is, if there are several."""
        if not self.holds(value):
            of = f": {what} " if what else " "
            raise InvalidRequestError(f"{param}{of}{self.complaint(value)}", param=param)

    @property
    def told(self) -> str:
        """The range in words, to follow "must be"."""
        if self.above:
            return f"above {_plain(self.low)} and at most {_plain(self.high)}"
        between = f"between {_plain(self.low)} and {_plain(self.high)}"
        return between if self.hole is None else f"{between}, but not {self.hole}"

    def complaint(self, value: Any) -> str:
        """What is wrong with a value outside of it, to follow its name or "It"."""
        return f"must be {self.told}, got {shown(value)}"

    @property
    def schema(self) -> dict[str, Any]:
        """The same in the words of JSON Schema."""
        limits: dict[str, Any] = {"exclusiveMinimum" if self.above else "minimum": self.low}
        limits["maximum"] = self.high
        return limits if self.hole is None else limits | {"not": {"const": self.hole}}


def _plain(number: float) -> str:
    return f"{number:g}" if isinstance(number, float) else str(number)


def shown(value: Any) -> str:
    """A value as a message quotes it: whatever it is, in a few characters."""
    if type(value) is int and value.bit_length() > 128:  # Python refuses to write very long ones
        digits = math.floor(value.bit_length() * math.log10(2)) + 1
        return f"an integer of about {digits} digits"
    if isinstance(value, str | bytes):
        value = value[: MAX_SHOWN + 1]
    text = repr(value) if isinstance(value, str | bytes | int | float) else type(value).__name__
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"
