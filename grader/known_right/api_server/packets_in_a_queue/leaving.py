"""Another design: a future that whichever of work and client ends first fulfils by a callback.

The reference waits for the first of two tasks; here two tasks have callbacks, and one future is awaited.
"""

import asyncio
import logging
import time
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from yaie.core.contracts import OutputStream, Reply

logger = logging.getLogger(__name__)

T = TypeVar("T")


async def until_disconnect(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """What `work` returns or raises; ClientDisconnect if the client leaves first."""
    loop = asyncio.get_running_loop()
    first: asyncio.Future[None] = loop.create_future()

    def ended(_: "asyncio.Future[Any]") -> None:
        if not first.done():
            first.set_result(None)

    async def listen() -> None:
        kind = ""
        while kind != "http.disconnect":
            kind = (await receive())["type"]

    both = [loop.create_task(work), loop.create_task(listen())]
    for task in both:
        task.add_done_callback(ended)
    try:
        await first
        is_done = both[0].done()
    finally:
        for task in both:
            task.cancel()
        await asyncio.wait(both)
    if is_done:
        return both[0].result()
    raise ClientDisconnect()


class Answering:
    """Stands around all that takes outputs from a stream."""

    __slots__ = ("reply", "stream")

    def __init__(self, stream: OutputStream, reply: Reply) -> None:
        self.stream, self.reply = stream, reply

    async def __aenter__(self) -> "Answering":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        try:
            await self.stream.aclose()
        finally:
            log_answer(self.stream, self.reply, error)
        return False


def log_answer(stream: OutputStream, reply: Reply, error: BaseException | None) -> None:
    """One line on how an answer ended, without a word of what was asked or said."""
    if not logger.isEnabledFor(logging.INFO):
        return
    now = time.perf_counter()
    count = reply.usage()
    logger.info(
        "%s %s: prompt %d (%d cached), output %d, first token %.3f s, total %.3f s",
        reply.id,
        _outcome(error),
        count["prompt_tokens"],
        count["prompt_tokens_details"]["cached_tokens"],
        count["completion_tokens"],
        (stream.first_output_at or now) - stream.submitted_at,
        now - stream.submitted_at,
    )


def _outcome(error: BaseException | None) -> str:
    match error:
        case None:
            return "ok"
        case asyncio.CancelledError() | ClientDisconnect():
            return "client left"
        case _:
            return f"failed, {getattr(error, 'code', None) or type(error).__name__}"
