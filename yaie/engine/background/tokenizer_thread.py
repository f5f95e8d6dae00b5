"""Tokenizing beside the event loop, which a long prompt would block. Used by `AsyncEngine`."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from yaie.core.errors import plain

T = TypeVar("T")


class TokenizerThread:
    """One thread, so one text at a time, in the order in which they came.

    num_pending: calls that wait or run. Lives on the event loop.
    """

    def __init__(
        self, name: str = "yaie-tokenizer", initializer: Callable[[], None] | None = None
    ) -> None:
        """initializer: called once, on the thread."""
        self.num_pending = 0
        self._executor = ThreadPoolExecutor(1, name, initializer)

    async def run(self, function: Callable[..., T], *args: Any) -> T:
        """What the function returns, or raises. One whose caller is cancelled before its turn is not
        called."""
        work = self._executor.submit(_called, function, *args)
        self._count(work)
        return await asyncio.wrap_future(work)

    def stop(self) -> None:
        """Take nothing more."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _count(self, work: "Future[Any]") -> None:
        loop = asyncio.get_running_loop()
        self.num_pending += 1

        def done(_: "Future[Any]") -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._done)

        work.add_done_callback(done)

    def _done(self) -> None:
        self.num_pending -= 1


def _called(function: Callable[..., T], *args: Any) -> T:
    try:
        return function(*args)
    except Exception:
        raise
    except BaseException as error:
        raise plain(error) from error
