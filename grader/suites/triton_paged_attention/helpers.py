"""What a part's functions gave or were given in the latest call, where it is not what they promise.

A wrong head or a part that is missing shows in another function, as an index outside of a tensor or as
a number that is off. A part of another make, without these functions, is not looked at.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any
from unittest.mock import patch

from grader.suites.triton_paged_attention import prefills, traced

NEIGHBOURS = "The heads of a group are neighbours: query head h reads key head h // GROUP."
MOST_SHOWN = 4
"""Parts of a sequence."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call, its arguments and results as numbers. caller: the kernel."""

    caller: str
    given: list[Any]
    gave: list[Any]


LATEST: dict[str, list[Call]] = {"group_heads": [], "part_of": []}
"""Of the latest call of `attend`."""


def forget() -> None:
    traced.forget()
    for calls in LATEST.values():
        calls.clear()


@contextmanager
def listening(part: ModuleType) -> Iterator[None]:
    """Calls inside are written down in LATEST."""
    forget()
    with ExitStack() as stack:
        for module in list(vars(part).values()):
            if not isinstance(module, ModuleType) or not module.__name__.startswith(part.__name__):
                continue
            for name, calls in LATEST.items():
                if hasattr(function := vars(module).get(name), "fn"):
                    stack.enter_context(patch.object(module, name, _noted(function, calls)))
            for name in traced.NAMES:
                if hasattr(function := vars(module).get(name), "fn"):
                    stack.enter_context(patch.object(module, name, traced.noted(name, function)))
        yield


def _noted(function: Any, calls: list[Call]) -> Callable[..., Any]:
    def noted(*args: Any, **kwargs: Any) -> Any:
        gave = function(*args, **kwargs)
        if not kwargs:
            caller = sys._getframe(1).f_code.co_name
            calls.append(Call(caller, [_numbers(a) for a in args], [_numbers(g) for g in gave]))
        return gave

    return noted


def _numbers(value: Any) -> Any:
    """An integer, or a list of them."""
    data = getattr(getattr(value, "handle", None), "data", getattr(value, "value", value))
    if not hasattr(data, "ravel"):
        return data
    numbers = [int(number) for number in data.ravel()]
    return numbers[0] if data.size == 1 else numbers


def told() -> tuple[str, str | None]:
    """What is wrong first, "" if nothing is; and a rule, None if the check's own words are one."""
    try:
        heads = (_of_heads(call) for call in LATEST["group_heads"])
        if found := next(filter(None, heads), ""):
            return found, NEIGHBOURS
        if found := _of_parts(LATEST["part_of"]):
            return found, ""
        return prefills.told()
    except Exception:  # noqa: BLE001, of another make: its arguments mean something else
        return "", ""


def _of_heads(call: Call) -> str:
    kv_head, group, rows = call.given
    heads, real = (list(x) if isinstance(x, list) else [x] * rows for x in call.gave)
    found = [head for head, is_real in zip(heads, real, strict=True) if is_real]
    right = list(range(kv_head * group, (kv_head + 1) * group))
    if set(found) <= set(right):
        return ""  # fewer may be a program for each head
    given = f"group_heads(kv_head={kv_head}, GROUP={group}, ROWS={rows})"
    return (
        f"{given} gives its real rows the query heads {_listed(found)}; they are {_listed(right)}"
    )


def _listed(numbers: list[int]) -> str:
    if len(numbers) > 1 and numbers == list(range(numbers[0], numbers[0] + len(numbers))):
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers))


def _of_parts(calls: list[Call]) -> str:
    """Of tensors of parts, which the kernel that joins them has."""
    for call in calls:
        start, end, split, splits, tile = call.given
        lists = [x if isinstance(x, list) else [x] for x in call.gave]
        for first, last in zip(*lists, strict=True):
            if first < end < last:
                part = f"part_of gives a part of the keys {start}..{end} the keys {first}..{last}"
                return f"{part}: no part ends behind {end}"
        if not isinstance(split, list) or len(split) < splits:
            continue  # one part alone, or a join that does not ask for all of them
        first, last = call.gave
        parts = [(a, b) for a, b in list(zip(first, last, strict=True))[:splits] if a < b]
        shown = ", ".join(f"{a}..{b}" for a, b in parts[:MOST_SHOWN])
        shown += ", ..." if len(parts) > MOST_SHOWN else ""
        what = (
            f"part_of divides the keys {start}..{end} among splits = {splits} with TILE = {tile} into "
            f"{shown or 'nothing'}"
        )
        at = start
        for a, b in sorted(parts):
            if a != at:
                how_many = "none" if a > at else "two"
                return f"{what}: keys {min(a, at)} to {max(a, at) - 1} are in {how_many}"
            at = b
        if at < end:
            return f"{what}: keys {at} to {end - 1} are in none"
    by_kernel: dict[str, set[tuple[int, int]]] = {}
    for call in calls:
        by_kernel.setdefault(call.caller, set()).add((call.given[0], call.given[1]))
    if len(by_kernel) == 2:
        (one, ones), (other, others) = sorted(by_kernel.items())
        if (only := sorted(ones - others)) and (there := sorted(others - ones)):
            return (
                f"{one} divides the keys {only[0][0]}..{only[0][1]}, {other} the keys "
                f"{there[0][0]}..{there[0][1]}: both must begin at the first key that the query sees"
            )
    return ""
