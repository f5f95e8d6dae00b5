"""Tokenizing beside the event loop, which a long prompt would block. Used by `AsyncEngine`."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")
IsWanted = Callable[[], bool]


class TokenizerThread:
    """One thread, so one text at a time. Short texts have one and long texts another.

    num_pending: calls that wait or run. Lives on the event loop.
    """

    def __init__(
        self, name: str = "yaie-tokenizer", initializer: Callable[[], None] | None = None
    ) -> None:
        """initializer: called once, on the thread."""
        self.num_pending = 0
        self._executor = ThreadPoolExecutor(1, name, initializer)
        self._has_stopped = threading.Event()

    async def run(self, function: Callable[..., T], *args: Any) -> T:
        """What the function returns, or raises. One whose caller is cancelled before its turn is not
        called."""
        loop = asyncio.get_running_loop()
        work = self._executor.submit(function, *args)
        self.num_pending += 1

        def done(_: Future[T]) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._done)

        work.add_done_callback(done)
        return await asyncio.wrap_future(work)

    async def run_while_wanted(self, function: Callable[[IsWanted], T]) -> T:
        """As `run`. The function is given a function that says whether anyone waits for it, and should
        raise when that is no longer so."""
        has_left = threading.Event()
        try:
            return await self.run(
                function, lambda: not (has_left.is_set() or self._has_stopped.is_set())
            )
        finally:
            has_left.set()

    def stop(self) -> None:
        """Take nothing more."""
        self._has_stopped.set()
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _done(self) -> None:
        self.num_pending -= 1
