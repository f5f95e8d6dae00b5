"""Another design: one task asks for the next message again and again, and the race is run anew for each.

The reference waits for the disconnect in a task of its own; here each message has a task, and
`Answering` puts what is to be done at the end on an exit stack.
"""

import asyncio
import logging
import time
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from yaie.core.contracts import OutputStream, Reply

logger = logging.getLogger(__name__)

T = TypeVar("T")


async def until_disconnect(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """What `work` returns or raises; ClientDisconnect if the client leaves first."""
    working = asyncio.ensure_future(work)
    async with AsyncExitStack() as ends:
        ends.push_async_callback(_ended, working)
        while not working.done():
            message = asyncio.ensure_future(receive())
            ends.push_async_callback(_ended, message)
            await asyncio.wait((message, working), return_when="FIRST_COMPLETED")
            if working.done():
                break
            if message.result()["type"] == "http.disconnect":
                raise ClientDisconnect
        return working.result()


async def _ended(task: "asyncio.Future[Any]") -> None:
    while not task.done():
        task.cancel()
        await asyncio.wait({task})


class Answering(AsyncExitStack):
    """Stands around all that takes outputs from a stream."""

    def __init__(self, stream: OutputStream, reply: Reply) -> None:
        super().__init__()
        self.push(partial(_logged, stream, reply))
        self.push_async_callback(stream.aclose)


def _logged(stream: OutputStream, reply: Reply, kind: Any, error: Any, traceback: Any) -> None:
    log_answer(stream, reply, error)


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
