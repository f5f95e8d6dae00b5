"""Connections below their requests: how many may be open, and what they are answered outside of any
request. How long a head may take is in `late_heads.py`, how long an answer may lie there in `unread.py`.

Uvicorn leaves a connection alone that is opened and never used, and answers what is no HTTP in plain
text. h11 bounds a request's head (16 KiB) and refuses what is malformed.
"""

import asyncio
import json
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from yaie.engine.background.rejections import Rejection, Rejections
from yaie.server.direct import Wire
from yaie.server.late_heads import LateHeads
from yaie.server.unread import Unread

MAX_HEAD_BYTES = 16 * 2**10


def connection_class(
    limit: int, head_seconds: float, rejections: Rejections
) -> type[asyncio.Protocol]:
    """What `uvicorn.Config(http=...)` takes.

    limit: connections that may be open. head_seconds: how long a client may take from the start of the
    connection, or with a further request once it has begun, to the end of the request's head.
    rejections: where to count connections beyond the limit.
    """

    unread, late_heads = Unread(), LateHeads(head_seconds)

    class Connection(H11Protocol):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self.conn = Wire(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            unread.watch(transport, self.loop)
            if len(self.connections) > limit:
                rejections[Rejection.MAX_CONNECTIONS] += 1
                self._answer(503, "Too many connections are open; try again later.")
            else:
                late_heads.watch(self, self.loop)

        @property
        def awaits_head(self) -> object | None:
            """The last request, or the connection before any; an idle connection awaits nothing."""
            if self.conn.their_state is not h11.IDLE or self.transport.is_closing():
                return None
            if self.cycle is None:
                return self
            return self.cycle if self.conn.trailing_data[0] else None

        def head_is_late(self) -> None:
            """See `LateHeads`."""
            self._answer(408, f"The request has not come within {head_seconds:g} seconds.")

        def connection_lost(self, exc: Exception | None) -> None:
            late_heads.forget(self)
            unread.forget(self.transport)
            super().connection_lost(exc)

        def shutdown(self) -> None:
            """By now the request that is still coming would be refused: its rest is not waited for."""
            asking = self.cycle is not None and self.cycle.more_body
            if asking and not self.cycle.response_started:
                self._answer(503, "The server is shutting down.")
            else:
                super().shutdown()

        def send_400_response(self, msg: str) -> None:
            self._answer(400, "This is no valid HTTP request, or its head is too long.")

        def _answer(self, status: int, message: str) -> None:
            """A whole response outside of any request; then the connection is closed."""
            answering = self.cycle is not None and self.cycle.response_started
            if not answering or self.cycle.response_complete:
                self.transport.write(refusal(status, message))
            self.transport.close()

    return Connection


def refusal(status: int, message: str) -> bytes:
    """A response with OpenAI's error object, from the first byte to the last."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    error = {"message": message, "type": kind, "param": None, "code": None}
    body = json.dumps({"error": error}).encode()
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
