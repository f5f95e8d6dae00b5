"""Another design: a watcher that cancels the work, instead of a race that is awaited from outside.

Where the reference waits for the first of two tasks, here the work runs in the caller's place and a
watcher beside it, which cancels the work when the client leaves and says that it did. `Answering` is
made of a generator, by contextlib.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from yaie.core.contracts import OutputStream, Reply

logger = logging.getLogger(__name__)

T = TypeVar("T")


async def until_disconnect(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """What `work` returns or raises; ClientDisconnect if the client leaves first."""
    working = asyncio.create_task(work)
    watcher = asyncio.create_task(_cancel_when_left(receive, working))
    try:
        return await _outcome_of(working, watcher)
    finally:
        await _end(working)
        await _end(watcher)


async def _outcome_of(working: "asyncio.Task[T]", watcher: "asyncio.Task[None]") -> T:
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        if working.cancelled() and watcher.done():
            raise ClientDisconnect from None
        raise


async def _cancel_when_left(receive: Receive, working: "asyncio.Task[Any]") -> None:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            break
    working.cancel()


async def _end(task: "asyncio.Task[Any]") -> None:
    """Cancel a task and wait until it has ended, however it does."""
    task.cancel()
    await asyncio.wait([task])


@contextlib.asynccontextmanager
async def Answering(stream: OutputStream, reply: Reply) -> AsyncIterator[None]:
    """Stands around all that takes outputs from a stream."""
    failure: BaseException | None = None
    try:
        yield
    except BaseException as error:
        failure = error
        raise
    finally:
        await stream.aclose()
        log_answer(stream, reply, failure)


def log_answer(stream: OutputStream, reply: Reply, error: BaseException | None) -> None:
    """One line on how an answer ended, without a word of what was asked or said."""
    if not logger.isEnabledFor(logging.INFO):
        return
    now = time.perf_counter()
    count = reply.usage()
    logger.info(
        "%s %s: prompt %d, output %d, total %.3f s",
        reply.id,
        _outcome(error),
        count["prompt_tokens"],
        count["completion_tokens"],
        now - stream.submitted_at,
    )


def _outcome(error: BaseException | None) -> str:
    if error is None:
        return "ok"
    if isinstance(error, asyncio.CancelledError | ClientDisconnect):
        return "client left"
    return f"failed, {getattr(error, 'code', None) or type(error).__name__}"
