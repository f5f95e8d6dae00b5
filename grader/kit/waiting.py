"""Awaiting what may never come: whoever waits gives up soon, and says what was awaited."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from grader.fair_clock import SLICE, FairClock
from grader.kit.expect import Mismatch

T = TypeVar("T")

PATIENCE_SECONDS = 3.0


def run(test: Coroutine[Any, Any, Any], seconds: float = 2 * PATIENCE_SECONDS) -> Any:
    """Run to the end, and give up rather than hang. Tasks that resist their cancellation are left."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(within(test, "the test", seconds))
    finally:
        if left := asyncio.all_tasks(loop):
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.wait(left, timeout=0.2))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def within(work: Awaitable[T], what: str, seconds: float = PATIENCE_SECONDS) -> T:
    """What `work` returns or raises. what: names what is awaited, as in "the answer to GET /"."""
    working, clock = asyncio.ensure_future(work), FairClock()
    done: set[Any] = set()
    try:
        while not done and (left := seconds - clock.used) > 0:
            done, _ = await asyncio.wait({working}, timeout=min(left, SLICE))
            clock.look()
    except asyncio.CancelledError:
        working.cancel()
        raise
    if not done:
        working.cancel()
        why = "Something is awaited that never comes, or is not raced against what does come."
        raise Mismatch(f"{what}: still awaited after {seconds:g} seconds", why=why)
    return await working


async def until(condition: Callable[[], object], what: str) -> None:
    """Let others run until this holds. what: names it, as in "the first chunk"."""
    clock = FairClock()
    while not condition():
        if clock.used > PATIENCE_SECONDS:
            clock.look()
            if clock.used > PATIENCE_SECONDS:
                raise Mismatch(f"{what}: still awaited after {PATIENCE_SECONDS:g} seconds")
        await asyncio.sleep(0)


async def settle(turns: int = 30) -> None:
    """Let all others go on until they wait for something that does not come by itself."""
    for _ in range(turns):
        await asyncio.sleep(0)
