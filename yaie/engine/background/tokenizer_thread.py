"""Tokenizing beside the event loop, which a long prompt would block. Used by `AsyncEngine`."""

import asyncio
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from yaie.core.errors import plain

T = TypeVar("T")


class NotWantedError(Exception):
    """The caller has left, or the engine stops."""


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
        work = self._executor.submit(_called, function, *args)
        self._count(work)
        return await asyncio.wrap_future(work)

    async def run_in_turns(self, work: Generator[None, None, T]) -> T:
        """What the generator returns, or raises. Where it yields, whatever else waits has a turn before
        it goes on: a short piece of work need not wait for the end of a long one that came before. It is
        closed instead as soon as the caller is cancelled."""
        has_left = threading.Event()
        result: Future[T] = Future()
        result.set_running_or_notify_cancel()  # `turn` alone ends it, when the thread has let go
        self._count(result)

        def give_up() -> None:
            work.close()
            result.set_exception(NotWantedError())

        def cancelled(waiting: Future[None]) -> None:
            if waiting.cancelled():
                give_up()

        def wait_for_turn() -> None:
            try:
                self._executor.submit(turn).add_done_callback(cancelled)
            except RuntimeError:  # it takes nothing more
                give_up()

        def turn() -> None:
            if has_left.is_set() or self._has_stopped.is_set():
                give_up()
                return
            try:
                next(work)
            except StopIteration as end:
                result.set_result(end.value)
            except BaseException as error:  # noqa: BLE001, the caller gets it
                result.set_exception(plain(error))
            else:
                wait_for_turn()

        wait_for_turn()
        try:
            return await asyncio.wrap_future(result)
        finally:
            has_left.set()

    def stop(self) -> None:
        """Take nothing more."""
        self._has_stopped.set()
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
