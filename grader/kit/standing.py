"""Whether a result stays what it was while further calls are made."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

from grader.kit.differ import told_apart
from grader.kit.expect import Mismatch

BUFFER = "Callers keep results while they ask for more: each call makes its own."


def expect_results_stand(
    calls: Sequence[Callable[[], Any]],
    what: str,
    taken: Callable[[Any], Any] = lambda result: result,
) -> None:
    """The results of these calls, the first ones too, are unchanged after the last. what: names what
    makes them. taken: the part of a result that must stay: lists, tensors, numbers."""
    results = []
    for last, call in enumerate(calls, 1):
        result = taken(call())
        results.append((result, deepcopy(result)))
        for number, (earlier, was) in enumerate(results, 1):
            if _alike(earlier, was):
                continue
            where, before, now = told_apart(_in_lists(was), _in_lists(earlier))
            problem = f"{what}: the result of call {number} has changed since it was returned"
            problem += f", first {where}" if where else ""
            why = f"It holds the result of call {last} now. " * _alike(earlier, result)
            raise Mismatch(problem, before, now, why + BUFFER)


def _in_lists(value: Any) -> Any:
    """The value with its tensors as lists of numbers: a report shows the numbers that differ."""
    if isinstance(value, tuple | list):
        parts = map(_in_lists, value)
        return tuple(parts) if isinstance(value, tuple) else list(parts)
    if type(value).__name__ == "Tensor":
        return _shortly(value.tolist())
    return value


def _shortly(values: Any) -> Any:
    """Floats with the digits that a report needs."""
    if isinstance(values, list):
        return [_shortly(value) for value in values]
    return float(f"{values:.6g}") if isinstance(values, float) else values


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(_alike, one, other))
    alike = one == other
    if hasattr(alike, "all"):  # a tensor or an array, in which NaN may be
        return bool((alike | ((one != one) & (other != other))).all())
    return bool(alike)
