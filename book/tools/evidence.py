"""Numbers in the text come from what was recorded: {{#value memory:shares.paged .1%}}."""

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from yaie.bench.evidence import EVIDENCE

# Keys may hold spaces; how to write the number stands last, if it stands there.
ASKED = re.compile(
    r"(?P<address>.+?)(?:\s+/(?P<unit>1e\d+))?(?:\s+(?P<form>,|[+,]*(?:\.\d+)?[%dfeg]))?"
)
KEY = re.compile(r"`([^`]+)`|([^.`]+)")
OF_RUNS: dict[str, Callable[[list[float]], float]] = {"median": median, "low": min, "high": max}
"""What may be asked of a list of repeated measurements."""


class EvidenceError(ValueError):
    """The recorded file has no such number, or it cannot be written as asked."""


def asked_value(text: str) -> str:
    """What a directive asks for: an address, perhaps a unit (/1e9) and a form. Raises EvidenceError."""
    found = ASKED.fullmatch(text.strip())
    if found is None:
        raise EvidenceError("{{#value}} needs a file and keys, as in memory:shares.paged")
    return value(found["address"], found["form"] or "", unit=float(found["unit"] or 1))


def asked_spread(text: str) -> str:
    """A median with the lowest and highest of its runs: "3.1 (2.9 to 3.4)". Raises EvidenceError."""
    address, _, form = text.strip().rpartition(" ")
    middle, low, high = (value(f"{address}.{which}", form) for which in OF_RUNS)
    return f"{middle} ({low} to {high})"


def value(address: str, form: str = "", *, unit: float = 1) -> str:
    """A recorded number as text.

    address: file and keys, "memory:shares.paged"; items of a list by number, or its median, low and
    high. form: a format specification of Python's; without one, text and whole numbers as they are.
    unit: what the number is counted in, 1e9 for billions. Raises EvidenceError.
    """
    name, _, keys = address.partition(":")
    found: Any = load(name)
    for key in _keys(keys):
        try:
            found = _item(found, key)
        except (KeyError, IndexError, TypeError, ValueError):
            there = list(found) if isinstance(found, dict) else type(found).__name__
            raise EvidenceError(f"{address}: no {key!r} in {there}") from None
    if not form and not isinstance(found, str | int):
        raise EvidenceError(f"{address} is {found!r}: say how to write it, for example .1f")
    try:
        return format(found if unit == 1 else found / unit, form)
    except (ValueError, TypeError) as error:
        raise EvidenceError(f"{address} is {found!r}: {error}") from None


def _keys(path: str) -> list[str]:
    """ "runs.`torch.compile`.ms" as its keys: a dot between backquotes belongs to a key."""
    return [quoted or plain for quoted, plain in KEY.findall(path)]


def _item(found: Any, key: str) -> Any:
    if not isinstance(found, list):
        return found[key]
    return OF_RUNS[key](found) if key in OF_RUNS else found[int(key)]


@cache
def load(name: str) -> Any:
    """The table of `book/evidence/<name>.json`. Raises EvidenceError."""
    path = Path(EVIDENCE / f"{name}.json")
    if not path.is_file():
        raise EvidenceError(f"there is no book/evidence/{name}.json")
    return json.loads(path.read_text("utf-8"))
