"""Writes pieces of a streamed answer to its connection at once, past ASGI and the task that streams it.

A token of a stream is a turn of the stream's task, a message that passes all middleware, and h11's look
at it: together several times what the token's JSON and its packet take. The middleware of this server
looks at the beginning of a response alone. One that changes bodies or holds them back is noticed
(`follows`); one that only counted them would have to be told here.

This file is the only one that knows uvicorn's insides. Where they are not as it expects, there is no
writer, and everything goes through ASGI.
"""

import asyncio
from contextvars import ContextVar
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from yaie.server.wire import Wire, chunk

KNOWN = ("conn", "flow", "transport", "disconnected", "response_started", "response_complete")
"""What is used of the object whose method uvicorn's `send` is."""


class Outbox:
    """The pieces of one turn of the event loop, by connection: all are made before the first is sent.

    Sending a packet evicts everything else from the processor's caches. If each piece were sent before
    the next one is made, making it would wait for its stream's objects to come from memory. Several
    pieces for one connection (choices of one request, steps that the loop came late to) are one packet.
    """

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Transport, bytes] = {}

    def put(self, transport: asyncio.Transport, data: bytes) -> None:
        """Send it once what is to be done now is done."""
        waiting = self._waiting
        if not waiting:
            asyncio.get_running_loop().call_soon(self._send)
        before = waiting.get(transport)
        waiting[transport] = data if before is None else before + data

    def hurry(self, transport: asyncio.Transport) -> None:
        """Send what waits for this connection now."""
        if data := self._waiting.pop(transport, None):
            transport.write(data)

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for transport, data in waiting.items():
            transport.write(data)


class PieceWriter:
    """Writes to the connection of one response whose length is not known, between two ASGI messages."""

    __slots__ = ("_cycle", "_flow", "_last", "_outbox", "_transport", "_wire")

    def __init__(self, cycle: Any, wire: Wire, outbox: Outbox) -> None:
        """cycle: uvicorn's `RequestResponseCycle`, which sends this response."""
        self._cycle, self._wire, self._outbox = cycle, wire, outbox
        self._flow, self._transport = cycle.flow, cycle.transport
        self._last = b""

    @classmethod
    def of(cls, send: Send, outbox: Outbox) -> "PieceWriter | None":
        """The writer beside a server's `send`; None unless it is that of the uvicorn we know."""
        cycle: Any = getattr(send, "__self__", None)
        is_known = (
            all(hasattr(cycle, name) for name in KNOWN)
            and hasattr(cycle.flow, "write_paused")
            and isinstance(cycle.conn, Wire)
        )
        return cls(cycle, cycle.conn, outbox) if is_known else None

    def hurry(self) -> None:
        """Send what waits: ASGI is about to send something behind it."""
        self._outbox.hurry(self._transport)

    def saw(self, message: Message) -> None:
        """ASGI has sent this message."""
        self._last = message.get("body", b"")

    def follows(self, piece: bytes) -> bool:
        """Whether pieces may follow this one: it came out as the end of the last message, so nothing on
        the way changes them or holds them back, and the response goes on in chunks."""
        cycle = self._cycle
        is_open = cycle.response_started and not cycle.response_complete
        return is_open and self._last.endswith(piece) and self._wire.is_chunked

    def write(self, piece: bytes) -> bool:
        """Send a piece in this turn, if the client keeps up; False if it does not, or has left."""
        if self._flow.write_paused or self._cycle.disconnected:
            return False
        self._outbox.put(self._transport, chunk(piece))
        return True


current: ContextVar[PieceWriter | None] = ContextVar("piece_writer", default=None)
"""The writer beside the response to the request that this task answers."""


class Pieces:
    """Plain ASGI middleware around everything: makes each request's writer `current`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._outbox = Outbox()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        writer = PieceWriter.of(send, self._outbox) if scope["type"] == "http" else None
        current.set(writer)
        if writer is None:
            await self._app(scope, receive, send)
            return

        async def watched(message: Message) -> None:
            writer.hurry()
            await send(message)
            writer.saw(message)

        await self._app(scope, receive, watched)
