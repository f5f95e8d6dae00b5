"""Sends an answer of typed events, or the whole one.

All that it needs beyond the events comes from the part in use: the same watch over clients that leave,
the same error object.
"""

import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from yaie.core.contracts import OutputStream
from yaie.core.errors import YaieError
from yaie.server.dialects.events import EventReply, Json

if TYPE_CHECKING:
    from yaie.core.contracts import ApiServer


async def whole_or_streamed(
    api: "ApiServer", stream: OutputStream, reply: EventReply, *, is_streamed: bool
) -> Response:
    """The answer in one piece, or its events. Those of the first output are made before the status is
    sent, which a failure then has."""
    if not is_streamed:
        response: Response = await api.whole_answer(stream, reply)
        return response
    try:
        first = list(reply.chunks(await anext(stream)))
    except BaseException:
        await stream.aclose()
        raise
    return ResponseStream(api, stream, reply, first)


class ResponseStream(Response):
    """Sends typed events as they come. Aborts the request when the client leaves."""

    media_type = "text/event-stream"

    def __init__(
        self, api: "ApiServer", stream: OutputStream, reply: EventReply, first: list[Json]
    ) -> None:
        """`first`: the events of the output that was taken already."""
        self.status_code = 200
        self.background = None
        self.init_headers({"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        self._api, self._stream, self._reply, self._first = api, stream, reply, first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all, until it is sent or the client has left."""
        with contextlib.suppress(ClientDisconnect, YaieError):
            async with self._api.Answering(self._stream, self._reply):
                await self._api.until_disconnect(receive, self._send_all(send))

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            await _send(send, self._reply, self._first)
            async for output in self._stream:
                await _send(send, self._reply, self._reply.chunks(output))
        except Exception as error:  # too late for a status
            last = self._reply.failure(self._api.error_body(error)["error"])
            await _send(send, self._reply, last)
            raise
        finally:
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send(send: Send, reply: EventReply, events: Iterable[Json]) -> None:
    body = b"".join(
        f"event: {event['type']}\ndata: {reply.encoded(event)}\n\n".encode() for event in events
    )
    if body:
        await send({"type": "http.response.body", "body": body, "more_body": True})
