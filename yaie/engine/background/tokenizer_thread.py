"""Tokenizing beside the event loop, which a long prompt would block. Used by `AsyncEngine`."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class TokenizerThread:
    """One thread: a tokenizer refuses to be used by two at a time ("Already borrowed").

    num_pending: calls that wait or run. Lives on the event loop.
    """

    def __init__(self) -> None:
        self.num_pending = 0
        self._executor = ThreadPoolExecutor(1, "yaie-tokenizer")

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

    def stop(self) -> None:
        """Take nothing more."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _done(self) -> None:
        self.num_pending -= 1
