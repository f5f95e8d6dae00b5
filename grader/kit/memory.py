"""What a call leaves behind, and what it takes meanwhile, in bytes of Python objects (`tracemalloc`)."""

import gc
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from grader.kit.expect import Fault
from grader.kit.holders import holder_of

WARM, ROUNDS, CALLS = 4, 10, 32
LEAST = 160
"""Bytes that a call must keep to be called a leak: a dict with one entry takes 184."""
LEAST_OF_A_LINE = 4
"""Bytes a call, on average, that make a line one that keeps something: a list grows by 8 for an item."""
FRAMES = 24
"""Calls between a part's line and the allocation, where the line is looked for."""
HISTORY = "What calls leave behind grows with every request that a server answers."


def kept_by(call: Callable[[], Any], calls: int = CALLS) -> float:
    """How many bytes more there are after each call, whose result is dropped: in the round of `calls`
    that kept least but one. Python and PyTorch make tables for what is called again and again, for
    hundreds of calls; a leak goes on in every round. And now and then something else is freed."""
    with _traced():
        for _ in range(WARM):
            call()
        rounds: list[float] = []
        while len(rounds) < ROUNDS and sum(each < LEAST / 2 for each in rounds) < 2:
            rounds.append(_round(call, calls))
        return sorted(rounds)[1]


def _round(call: Callable[[], Any], calls: int) -> float:
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(calls):
        call()
    gc.collect()
    return (tracemalloc.get_traced_memory()[0] - before) / calls


def peak_of(call: Callable[[], Any]) -> int:
    """How many bytes a call has at most, at once, of what it makes itself."""
    with _traced():
        gc.collect()
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        call()
        return tracemalloc.get_traced_memory()[1] - before


def expect_keeps_nothing(call: Callable[[], Any], what: str, *, why: str = HISTORY) -> None:
    """Calls with the same arguments leave nothing behind. what: names the call."""
    kept = kept_by(call)
    if kept >= LEAST:
        problem = f"{what} keeps {kept:.0f} bytes more with each of {CALLS} calls"
        holder = holder_of(call)
        if holder is not None:
            problem += f": {holder.told}"
        line = holder.line if holder is not None else None
        raise Fault(problem, why=why, line=line or keeping_line(call))


def keeping_line(call: Callable[[], Any]) -> tuple[str, int] | None:
    """The line of the part, (file, number), that makes most of what stays; None if none of its lines
    does: what stays may be an argument, which others have made."""
    files = {
        getattr(module, "__file__", None)
        for name, module in list(sys.modules.items())
        if name.startswith("labs.")
    }
    frames = tracemalloc.get_traceback_limit() if tracemalloc.is_tracing() else 0
    tracemalloc.stop()
    tracemalloc.start(FRAMES)
    try:
        call()
        gc.collect()
        before = tracemalloc.take_snapshot()
        for _ in range(CALLS):
            call()
        gc.collect()
        grown = tracemalloc.take_snapshot().compare_to(before, "traceback")
    finally:
        tracemalloc.stop()
        if frames:
            tracemalloc.start(frames)
    kept: Counter[tuple[str, int]] = Counter()
    for difference in grown:
        own = [frame for frame in difference.traceback if frame.filename in files]
        if own:  # the innermost comes last
            kept[own[-1].filename, own[-1].lineno] += difference.size_diff
    line, size = kept.most_common(1)[0] if kept else (None, 0)
    return line if size >= LEAST_OF_A_LINE * CALLS else None


@contextmanager
def _traced() -> Iterator[None]:
    """Traces allocations in the block, and before and after it if they were traced already. What was
    there before it is not looked at by the garbage collector, which costs more than all calls together.
    """
    was_tracing, was_frozen = tracemalloc.is_tracing(), gc.get_freeze_count() > 0
    gc.freeze()
    if not was_tracing:
        tracemalloc.start()
    try:
        yield
    finally:
        if not was_tracing:
            tracemalloc.stop()
        if not was_frozen:
            gc.unfreeze()
