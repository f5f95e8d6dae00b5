"""Sending answers, and noticing at once that a client has left.

A client that leaves is known by a message that the server puts behind the request's body. It is raced
against the work: no polling, and the same for answers that are streamed and those that are not. This
needs the server's own `receive`: a middleware built on Starlette's BaseHTTPMiddleware replaces it by
one that answers late or never, so every middleware of this server is plain ASGI.
"""

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator, Coroutine, Iterable
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from yaie.core.errors import YaieError
from yaie.engine.openai_format import Reply, usage
from yaie.engine.request_stream import RequestStream
from yaie.server.errors import error_body

logger = logging.getLogger(__name__)

T = TypeVar("T")
DONE = b"data: [DONE]\n\n"


async def until_disconnect(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """What `work` returns. Cancels it and raises ClientDisconnect if the client leaves first."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return await working
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def whole_answer(stream: RequestStream, reply: Reply) -> Response:
    """The answer in one piece, once it is complete."""
    async with _closing(stream, reply):
        async for output in stream:
            reply.add(output)
    return JSONResponse(reply.result())


async def streamed_answer(stream: RequestStream, reply: Reply) -> Response:
    """The answer as server-sent events. Waits for the first output: an error that comes before it
    still gets a status of its own."""
    try:
        first = list(reply.chunks(await anext(stream)))
    except BaseException:
        await stream.aclose()
        raise
    return EventStream(stream, reply, first)


class EventStream(Response):
    """Sends chunks as they come, then [DONE]. Aborts the request when the client leaves."""

    media_type = "text/event-stream"

    def __init__(self, stream: RequestStream, reply: Reply, first: list[dict[str, Any]]) -> None:
        """`first`: the chunks of the output that was taken already."""
        self.status_code = 200
        self.background = None
        # Proxies must pass every event on as it comes.
        self.init_headers({"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        self._stream, self._reply, self._first = stream, reply, first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with contextlib.suppress(ClientDisconnect, YaieError):  # logged, and the client was told
            async with _closing(self._stream, self._reply):
                await until_disconnect(receive, self._send_all(send))

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            await _send_events(send, self._first)
            async for output in self._stream:
                await _send_events(send, self._reply.chunks(output))
            if self._reply.include_usage:
                await _send_events(send, [self._reply.usage_chunk()])
        except Exception as error:  # too late for a status
            await _send_events(send, [error_body(error)])
            raise
        finally:
            await send({"type": "http.response.body", "body": DONE, "more_body": False})


@contextlib.asynccontextmanager
async def _closing(stream: RequestStream, reply: Reply) -> AsyncIterator[None]:
    """Abort what still runs, however the block is left, and log how it ended."""
    outcome = "ok"
    try:
        yield
    except (asyncio.CancelledError, ClientDisconnect):
        outcome = "client left"
        raise
    except Exception as error:
        outcome = f"failed, {getattr(error, 'code', None) or type(error).__name__}"
        raise
    finally:
        await stream.aclose()
        _log(stream, reply, outcome)


def _log(stream: RequestStream, reply: Reply, outcome: str) -> None:
    count = usage(stream.requests)
    first = (stream.first_output_at or time.perf_counter()) - stream.submitted_at
    logger.info(
        "%s %s: prompt %d (%d cached), output %d, first token %.3f s, total %.3f s",
        reply.id,
        outcome,
        count["prompt_tokens"],
        count["prompt_tokens_details"]["cached_tokens"],
        count["completion_tokens"],
        first,
        time.perf_counter() - stream.submitted_at,
    )


async def _send_events(send: Send, events: Iterable[dict[str, Any]]) -> None:
    body = b"".join(_event(event) for event in events)
    if body:
        await send({"type": "http.response.body", "body": body, "more_body": True})


def _event(data: dict[str, Any]) -> bytes:
    # In ASCII: some clients split lines at U+2028 and U+0085 too, which stand for themselves in JSON.
    return f"data: {json.dumps(data, allow_nan=False, separators=(',', ':'))}\n\n".encode()
