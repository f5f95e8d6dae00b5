"""What a call leaves behind, and what it takes meanwhile, in bytes of Python objects (`tracemalloc`)."""

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from grader.kit.expect import expect

WARM, ROUNDS, CALLS = 4, 10, 32
LEAST = 160
"""Bytes that a call must keep to be called a leak: a dict with one entry takes 184."""
HISTORY = (
    "What a call leaves behind in its module or object grows with every request that a server ever "
    "answers. Keep only what a later call needs, and drop it when its request is over."
)


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


def expect_keeps_nothing(call: Callable[[], Any], what: str) -> None:
    """Calls with the same arguments leave nothing behind. what: names the call."""
    kept = kept_by(call)
    expect(
        kept < LEAST, f"{what} keeps {kept:.0f} bytes more with each of {CALLS} calls", why=HISTORY
    )


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
