"""Another design: the bodies of a stream are a generator, and one loop sends whatever it yields.

The reference sends from several places of one function; here what is said and how it is sent are two
functions, and JSON is made ASCII by hand.
"""

import json
from collections.abc import AsyncIterator, Iterable
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from yaie.core.contracts import OutputStream, Reply
from yaie.core.errors import YaieError

from .errors import error_body
from .large import json_response
from .leaving import Answering, until_disconnect

DONE = b"data: [DONE]\n\n"
ENCODER = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"))


async def whole_answer(stream: OutputStream, reply: Reply) -> Response:
    """The answer in one piece, as JSON, once it is complete."""
    async with Answering(stream, reply):
        while (output := await anext(stream, None)) is not None:
            reply.add(output)
    return await json_response(reply)


def event(data: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return b"".join((b"data: ", ENCODER.encode(data).encode("ascii"), b"\n\n"))


def _packet(events: Iterable[dict[str, Any]]) -> bytes:
    return b"".join(map(event, events))


async def streamed_answer(stream: OutputStream, reply: Reply) -> Response:
    """The answer as an EventStream, once its first output is there."""
    begun = False
    try:
        output = await anext(stream)
        first = [*reply.chunks(output)]
        begun = True
    finally:
        if not begun:
            await stream.aclose()
    return EventStream(stream, reply, first)


class EventStream(Response):
    """Sends what `_packets` yields, then [DONE]."""

    media_type = "text/event-stream"

    def __init__(self, stream: OutputStream, reply: Reply, first: list[dict[str, Any]]) -> None:
        self.status_code = 200
        self.background = None
        self.init_headers({"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        self._stream, self._reply, self._first = stream, reply, first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all until it is sent or the client has left."""
        try:
            async with Answering(self._stream, self._reply):
                await until_disconnect(receive, self.send_all(send))
        except (ClientDisconnect, YaieError):
            return

    async def send_all(self, send: Send) -> None:
        """The whole response, in ASGI's messages."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            async for packet in self._packets():
                await _send_body(send, packet)
        except Exception as error:
            await _send_body(send, event(error_body(error)))
            raise
        finally:
            await send({"type": "http.response.body", "body": DONE, "more_body": False})

    async def _packets(self) -> AsyncIterator[bytes]:
        yield _packet(self._first)
        async for output in self._stream:
            yield _packet(self._reply.chunks(output))
        if self._reply.include_usage:
            yield event(self._reply.usage_chunk())


async def send_events(send: Send, events: Iterable[dict[str, Any]]) -> None:
    """These events as one message; none if there are none."""
    await _send_body(send, _packet(events))


async def _send_body(send: Send, body: bytes) -> None:
    if body:
        await send({"type": "http.response.body", "body": body, "more_body": True})
