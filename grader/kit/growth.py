"""How the cost of a call grows with one quantity, against what the contract says. No seconds are asked.

A call is counted at sizes n, 2n and 4n: the lines that the learner's files run and those that they call,
what methods of lists, dicts, sets and deques go through in C, what `in`, slices and `sum` go through in
the learner's lists (`own_lists`), what is read of containers that the grader hands in (`CountedList`),
and the elements of PyTorch's operations. All of it counts for the innermost line of the learner's. Apart
from these, the bytes count that the call has at once.
"""

import gc
import math
import os
import sys
import tracemalloc
from collections import Counter, deque
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from grader.kit import counted, own_lists
from grader.kit.expect import Fault
from grader.kit.script import note

ALLOWANCE = 0.3
"""How far an exponent may lie above the contract's: for a logarithm, and the ends of loops."""
FEW_STEPS, FEW_BYTES = 64, 1024
"""More at 4n than at n by no more than these is no growth."""
WHOLE = {
    list: {"index", "remove", "insert", "count", "copy", "reverse", "sort"},
    deque: {"index", "remove", "insert", "count", "copy", "reverse", "rotate"},
    dict: {"copy"},
    set: {"copy", "union", "difference", "symmetric_difference", "issubset"},
}
"""Methods in C that go through all of their object, or a good part of it."""
NOT_TRACED = (__file__, counted.__file__, own_lists.__file__, f"{os.sep}torch{os.sep}")
"""Parts of the paths of files whose lines do not count: PyTorch's elements do."""
Place = tuple[str, int]
"""A learner's (file, line)."""
Make = Callable[[int], Callable[[], Any]]
"""Prepares a size, which is not counted, and returns the call that is."""


def steps_of(call: Callable[[], Any], part: ModuleType) -> Counter[Place]:
    """How many steps each line of a part takes in a call, with all that it calls."""
    files = _files_of(part)
    steps: Counter[Place] = Counter()

    def took(frame: FrameType | None, number: int) -> None:
        while frame is not None and not frame.f_code.co_filename.startswith(files):
            frame = frame.f_back
        if frame is not None:
            steps[frame.f_code.co_filename, frame.f_lineno] += number

    def on_line(frame: FrameType, event: str, argument: Any) -> Any:
        took(frame, event == "line")
        return on_line

    def on_call(frame: FrameType, event: str, argument: Any) -> Any:
        is_own = any(own in frame.f_code.co_filename for own in NOT_TRACED)
        return None if is_own else on_line

    popped: list[Any] = []

    def on_pop(frame: FrameType, event: str, owner: list[Any]) -> None:
        # Which one is taken no event says. If it was the first, all others have moved.
        if event == "c_call":
            popped[:] = owner
            return
        if event == "c_return" and owner and owner[0] is not popped[0]:
            took(frame, len(owner))
        popped.clear()

    def on_method(frame: FrameType, event: str, function: Any) -> None:
        if not event.startswith("c_"):
            return
        owner = getattr(function, "__self__", None)
        if isinstance(owner, list) and function.__name__ == "pop":
            on_pop(frame, event, owner)
        if event != "c_call":
            return
        for kind, names in WHOLE.items():
            if isinstance(owner, kind) and function.__name__ in names:
                took(frame, len(owner))

    def on_items(number: int) -> None:
        took(sys._getframe(1), number)

    traced, profiled = sys.gettrace(), sys.getprofile()
    gc.disable()  # finalizers would be counted wherever the collector happens to run
    try:
        with (
            counted.counting(on_items),
            counted.counted_tensors(on_items),
            own_lists.counted_operators(part, files, on_items),
        ):
            sys.setprofile(on_method)
            sys.settrace(on_call)
            try:
                call()
            finally:
                sys.settrace(traced)
                sys.setprofile(profiled)
    finally:
        gc.enable()
    return steps


def expect_growth(
    part: ModuleType,
    what: str,
    quantity: str,
    make: Make,
    *,
    size: int = 64,
    exponent: float = 0,
    memory: bool = True,
    why: str = "",
) -> None:
    """What a call costs, in steps and in bytes, grows as the contract says: as size^exponent at most.

    what: names the call, quantity: what there are `size`, 2 and 4 times `size` of. memory: bytes count
    too, where nothing may grow. Raises a Fault that names the line which did most of the work.
    """
    sizes = (size, 2 * size, 4 * size)
    note(f"# {what}, counted with {', '.join(f'{n:,}' for n in sizes)} {quantity}")
    # Now and then a heap is put in order for many calls to come: at n or at n + 1, not at both.
    both = [[steps_of(make(near), part) for near in (n, n + 1)] for n in sizes]
    found = [min(pair, key=Counter.total) for pair in both]
    totals = [steps.total() for steps in found]
    if grows(totals, FEW_STEPS, exponent):
        (file, line), _ = (found[2] - found[0]).most_common(1)[0]
        raise Fault(
            _problem(what, quantity, sizes, totals, "steps (lines that run, items read in C)"),
            _power(exponent), _power(_exponent(totals)), why, line=(file, line),
        )  # fmt: skip
    if exponent or not memory:  # CPython's lists of free objects hide the bytes of small sizes
        return
    peaks = [min(_peak_of(make(n)), _peak_of(make(n + 1))) for n in sizes]
    if grows(peaks, FEW_BYTES, exponent):
        least, most = (_bytes_of(make(n), part) for n in (sizes[0], sizes[2]))
        grown = (most - least).most_common(1)
        raise Fault(
            _problem(what, quantity, sizes, peaks, "bytes at once"),
            _power(exponent), _power(_exponent(peaks)), why, line=grown[0][0] if grown else None,
        )  # fmt: skip


def line_that_grows(
    part: ModuleType, few: Callable[[], Any], many: Callable[[], Any]
) -> Place | None:
    """The learner's line that takes more steps in `many` than in `few`, of all that do the one with the
    most; None if all grow little. For a check that counts otherwise, and has failed."""
    more = steps_of(many, part)
    more.subtract(steps_of(few, part))
    place, steps = more.most_common(1)[0] if more else (None, 0)
    return place if steps > FEW_STEPS else None


def grows(costs: Sequence[int], few: int, exponent: float) -> bool:
    """Whether costs at n, 2n and 4n grow faster than n^exponent."""
    return costs[2] - costs[0] > few and _exponent(costs) > exponent + ALLOWANCE


def _exponent(costs: Sequence[int]) -> float:
    return math.log(max(costs[2], 1) / max(costs[0], 1)) / math.log(4)


def _peak_of(call: Callable[[], Any]) -> int:
    """How many bytes of Python objects a call has at most at once, of those that it makes."""
    gc.disable()  # a collection takes longer than all else here
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        gc.enable()


def _bytes_of(call: Callable[[], Any], part: ModuleType) -> Counter[Place]:
    """How many bytes more there are at once while each line of a part runs, with what it calls."""
    files, most = _files_of(part), Counter[Place]()
    place, before = ("", 0), 0

    def goes_on(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal place, before
        now, peak = tracemalloc.get_traced_memory()
        most[place] = max(most[place], peak - before)
        tracemalloc.reset_peak()
        at = frame.f_back if event == "return" else frame
        if at is not None and at.f_code.co_filename.startswith(files):
            place = at.f_code.co_filename, at.f_lineno
        before = now
        return goes_on

    def on_call(frame: FrameType, event: str, argument: Any) -> Any:
        return goes_on if frame.f_code.co_filename.startswith(files) else None

    traced = sys.gettrace()
    gc.disable()
    tracemalloc.start()
    sys.settrace(on_call)
    try:
        call()
    finally:
        sys.settrace(traced)
        tracemalloc.stop()
        gc.enable()
    del most["", 0]
    return most


def _files_of(part: ModuleType) -> str:
    """What the paths of a part's files begin with."""
    path = Path(part.__file__ or "")
    return f"{path.parent}{os.sep}" if path.name == "__init__.py" else str(path)


def _problem(what: str, quantity: str, sizes: Sequence[int], costs: Sequence[int], of: str) -> str:
    return f"{what} takes {_listed(costs)} {of}, with {_listed(sizes)} {quantity}"


def _listed(numbers: Sequence[int]) -> str:
    return "{:,}, {:,} and {:,}".format(*numbers)


def _power(exponent: float) -> str:
    return f"a cost of n^{exponent:.2g}" if exponent else "a cost that does not grow"
