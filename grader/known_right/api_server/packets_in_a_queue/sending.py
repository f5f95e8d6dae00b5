"""Another design: one task makes packets, another sends them, with a queue of one between them.

The reference makes an output's events and sends them in one loop; here the next output is awaited while
the last one's packet is still being sent.
"""

import asyncio
import json
from collections.abc import Iterable
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


async def whole_answer(stream: OutputStream, reply: Reply) -> Response:
    """The answer in one piece, as JSON, once it is complete."""
    around = Answering(stream, reply)
    async with around:
        [reply.add(output) async for output in stream]
    return await json_response(reply)


def event(data: dict[str, Any]) -> bytes:
    """One server-sent event."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return b"data: %b\n\n" % text.encode("ascii")


async def streamed_answer(stream: OutputStream, reply: Reply) -> Response:
    """The answer as an EventStream, once its first output is there."""
    try:
        async for output in stream:
            return Primed(stream, reply, list(reply.chunks(output)))
        return Primed(stream, reply, [])
    except BaseException as error:
        await stream.aclose()
        raise error


class EventStream(Response):
    """Sends the packets of a queue, then [DONE]."""

    media_type = "text/event-stream"

    def __init__(self, stream: OutputStream, reply: Reply, first: list[dict[str, Any]]) -> None:
        self.status_code = 200
        self.background = None
        self.init_headers({"X-Accel-Buffering": "no", "Cache-Control": "no-cache"})
        self.stream, self.reply, self.first = stream, reply, first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all until it is sent or the client has left."""
        try:
            async with Answering(self.stream, self.reply):
                await until_disconnect(receive, self.send_all(send))
        except ClientDisconnect:
            pass
        except YaieError:
            pass

    async def send_all(self, send: Send) -> None:
        """The whole response, in ASGI's messages."""
        headers = [(name, value) for name, value in self.raw_headers]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        packets: asyncio.Queue[bytes | Exception | None] = asyncio.Queue(1)
        making = asyncio.create_task(self._make(packets))
        try:
            while (packet := await packets.get()) is not None:
                if isinstance(packet, Exception):
                    raise packet
                await _send(send, packet)
        except Exception as error:
            await _send(send, event(error_body(error)))
            raise
        finally:
            making.cancel()
            await asyncio.gather(making, return_exceptions=True)
            await send({"type": "http.response.body", "body": DONE})

    async def _make(self, packets: "asyncio.Queue[bytes | Exception | None]") -> None:
        """Put every packet, then None; or the exception that ended it."""
        try:
            await packets.put(_joined(self.first))
            async for output in self.stream:
                await packets.put(_joined(self.reply.chunks(output)))
            if self.reply.include_usage:
                await packets.put(event(self.reply.usage_chunk()))
        except Exception as error:  # noqa: BLE001 (raised where packets are taken)
            await packets.put(error)
        else:
            await packets.put(None)


class Primed(EventStream):
    """An EventStream whose first output has been taken."""


def _joined(events: Iterable[dict[str, Any]]) -> bytes:
    body = bytearray()
    for data in events:
        body += event(data)
    return bytes(body)


async def _send(send: Send, body: bytes) -> None:
    if body:
        await send({"type": "http.response.body", "body": body, "more_body": True})


async def send_events(send: Send, events: Iterable[dict[str, Any]]) -> None:
    """These events as one message; none if there are none."""
    await _send(send, _joined(events))
