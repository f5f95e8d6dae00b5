"""What a part's kernels gave to the functions of `tiles`, and got from `sees`, in the latest call.

Prefill's kernel is the learner's own; `load_rows`, `locate`, `attend_keys` and `sees` are not: their
arguments say which queries a program has, at which positions, and which keys it takes. Of a part of
another make, without these functions, nothing is noted.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from grader.kit.triton_watch import Seen

NAMES = ("load_rows", "locate", "attend_keys", "sees")


@dataclass(slots=True)
class Program:
    """tokens: rows of q that are real. positions: of each row that is real. unmasked, masked: the ranges
    of keys. sees: (position of a query, keys that it is said to see, keys that it sees)."""

    tokens: list[int] = field(default_factory=list)
    real: Any = None
    positions: dict[int, int] = field(default_factory=dict)
    unmasked: list[tuple[int, int]] = field(default_factory=list)
    masked: list[tuple[int, int]] = field(default_factory=list)
    sees: list[tuple[int, list[int], list[int]]] = field(default_factory=list)


@dataclass(slots=True)
class Trace:
    """case: of `bench`. rows, lookup: the latest arguments of load_rows and of locate. is_over: all
    programs have run."""

    case: Any = None
    seen: Seen | None = None
    is_over: bool = False
    rows: dict[str, Any] = field(default_factory=dict)
    lookup: dict[str, Any] = field(default_factory=dict)
    programs: dict[tuple[int, ...], Program] = field(default_factory=dict)


LATEST = Trace()


def forget() -> None:
    LATEST.case, LATEST.seen, LATEST.is_over = None, None, False
    LATEST.rows, LATEST.lookup, LATEST.programs = {}, {}, {}


def begin(case: Any, seen: Seen) -> None:
    """Calls from now on belong to this case."""
    LATEST.case, LATEST.seen = case, seen


def noted(name: str, function: Any) -> Callable[..., Any]:
    """The function, whose calls are written down. What goes wrong in that is no mistake of the part."""
    signature = inspect.signature(function.fn)

    def called(*args: Any, **kwargs: Any) -> Any:
        if LATEST.case is None:
            return function(*args, **kwargs)
        try:
            given = signature.bind(*args, **kwargs).arguments
            program = LATEST.programs.setdefault(_program(), Program())
            if name != "sees":
                _NOTES[name](program, given)
        except Exception:  # noqa: BLE001, arguments of another kind
            return function(*args, **kwargs)
        gave = function(*args, **kwargs)
        if name == "sees":
            try:
                _note_sees(program, given, lanes(gave))
            except Exception:  # noqa: BLE001, a result of another kind
                return gave
        return gave

    return called


def _program() -> tuple[int, ...]:
    from triton.runtime.interpreter import interpreter_builder

    return tuple(interpreter_builder.grid_idx)


def lanes(value: Any) -> Any:
    return np.asarray(getattr(getattr(value, "handle", None), "data", value))


def one(value: Any) -> int:
    return int(np.ravel(lanes(getattr(value, "value", value)))[0])


def _note_rows(program: Program, given: dict[str, Any]) -> None:
    LATEST.rows = given
    real = lanes(given["real"]).astype(bool).ravel()
    program.real = real
    index = np.broadcast_to(lanes(given["index"]).ravel(), real.shape)
    program.tokens = [int(token) for token in index[real]]


def _note_keys(program: Program, given: dict[str, Any]) -> None:
    ranges = program.masked if one(given["CAUSAL"]) else program.unmasked
    start, end = one(given["start"]), one(given["end"])
    if start < end:
        ranges.append((start, end))
    if program.real is not None and (positions := lanes(given["positions"])).size > 1:
        found = positions.ravel()[program.real].tolist()
        program.positions.update(zip(program.tokens, map(int, found), strict=True))


def _note_sees(program: Program, given: dict[str, Any], gave: Any) -> None:
    positions, keys = (lanes(given[name]).ravel() for name in ("positions", "keys"))
    distance = positions[:, None] - keys[None, :]
    right = distance >= 0
    if one(given["WINDOWED"]):
        right &= distance < one(given["window"])
    found = np.broadcast_to(gave, right.shape).astype(bool)
    for row in np.flatnonzero((right != found).any(1))[:1]:
        seen = keys[found[row]].tolist(), keys[right[row]].tolist()
        program.sees.append((int(positions[row]), *seen))


def _note_lookup(program: Program, given: dict[str, Any]) -> None:
    LATEST.lookup = given


_NOTES: dict[str, Callable[[Program, dict[str, Any]], None]] = {
    "load_rows": _note_rows,
    "locate": _note_lookup,
    "attend_keys": _note_keys,
}
