"""Plain pieces of a streamed answer, written to the connection in the moment the engine yields them.

    OpenStreams.put -> RequestStream.put -> Direct.take -> PieceWriter.write -> Outbox -> transport
                            |
                            | what is not taken, and all where lab 8 is a learner's
                            v
                       the stream's task -> lab 8's EventStream.send_all -> reply.chunks -> ASGI

A token of a stream is a turn of the stream's task, a message that passes all middleware, and h11's look
at it: together several times what the token's JSON and its packet take. Of a plain answer's chunks only
the text differs. `Direct` looks at the first one of each choice that goes the usual way, and keeps what
stands before and behind its text; from then on it takes pieces, most of them, while the stream's task
has nothing to do. Beginnings, ends, errors and whatever a slow client has left behind go the usual way:
there outputs are merged, and a task can wait.

The middleware of this server looks at the beginning of a response alone. One that changes bodies or
holds them back is noticed (`follows`); one that only counted them would have to be told here. The inside
of uvicorn and of h11 is known here and in `connections.py`. Where they are not as this file expects,
there is no writer, and everything goes through ASGI.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import replace
from json.encoder import encode_basestring_ascii
from typing import Any

import h11
from h11._writers import ChunkedWriter
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from yaie.core.contracts import Reply
from yaie.core.output import RequestOutput, Submitted
from yaie.server.extras.reply import ExtendedReply
from yaie.server.extras.step import Json

KNOWN = ("conn", "flow", "transport", "disconnected", "response_started", "response_complete")
"""What is used of the object whose method uvicorn's `send` is."""
_MARK = "\0"
"""In the place of a text, to find what stands around it."""


class Wire(h11.Connection):
    """h11's own, but for pieces of a body of unknown length: those are framed here.

    Of the event loop's time for a streamed token h11 took a third, to find by three tables that the body
    goes on. Nothing changes in its state: such a piece leaves it where it was.
    """

    @property
    def is_chunked(self) -> bool:
        """Whether such a body is being sent."""
        return type(self._writer) is ChunkedWriter and self.our_state is h11.SEND_BODY

    def send(self, event: h11.Event) -> bytes | None:  # type: ignore[override]
        if type(event) is h11.Data and self.is_chunked:
            return chunk(bytes(event.data)) if event.data else b""
        return super().send(event)


def chunk(piece: bytes) -> bytes:
    """A piece of a body of unknown length as it goes over the wire (RFC 9112, 7.1). Not for an empty
    one, which would be the end."""
    return b"%x\r\n%b\r\n" % (len(piece), piece)


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


class Direct:
    """Around a reply, whose chunks it passes on: `take` writes the same bytes, of what is plain."""

    def __init__(self, reply: Reply, event: Callable[[Json], bytes], writer: PieceWriter) -> None:
        """event: how the part in use writes a chunk."""
        self._reply = reply
        self.id: str = reply.id
        self.requests: Sequence[Submitted] = reply.requests
        self.include_usage: bool = reply.include_usage
        self._event = event
        self._writer = writer
        self._is_open = False
        self._shown = b""  # the newest piece that went the usual way
        self._frames: dict[str, tuple[bytes, bytes]] = {}  # of requests: before and behind the text
        # The newest outputs that the reply has not been given.
        self._untold: dict[str, RequestOutput] = {}

    def add(self, output: RequestOutput) -> None:
        """Take over an output of a whole answer. Raises YaieError if its request failed."""
        self._reply.add(output)

    def result(self) -> Json:
        """The whole answer."""
        return self._reply.result()

    def chunks(self, output: RequestOutput) -> Iterator[Json]:
        """The chunks that an output makes."""
        self._untold.pop(output.request_id, None)
        chunk: Json | None = None
        for chunk in self._reply.chunks(output):
            yield chunk
        if chunk is not None and not (self._is_open and output.request_id in self._frames):
            self._look_at(output, chunk)

    def take(self, output: RequestOutput) -> bool:
        """Write an output's piece; False if it has to go the usual way. To be called while the stream's
        task waits for an output, and has sent all that came before."""
        frame = self._frames.get(output.request_id)
        if frame is None or output.finish_reason is not None:
            return False
        if not self._is_open:
            self._is_open = self._writer.follows(self._shown)
            if not self._is_open:
                return False
        if output.text:
            before, behind = frame
            text = encode_basestring_ascii(output.text).encode()
            if not self._writer.write(b"%b%b%b" % (before, text, behind)):
                return False
        self._untold[output.request_id] = output
        return True

    def usage(self) -> Json:
        """OpenAI's token counts of the call, as far as its outputs have come."""
        for output in self._untold.values():
            for _ in self._reply.chunks(replace(output, text="")):
                pass  # it makes none: only what it counts is taken over
        self._untold.clear()
        return self._reply.usage()

    def usage_chunk(self) -> Json:
        """The last chunk of a stream that was asked for its usage."""
        self.usage()
        return self._reply.usage_chunk()

    def _look_at(self, output: RequestOutput, chunk: Json) -> None:
        """Learn from the last chunk of an output what stands around its text."""
        if isinstance(self._reply, ExtendedReply) and not self._reply.passes(output):
            return
        self._shown = self._event(chunk)
        if not output.text or output.finish_reason is not None:
            return
        choice = chunk["choices"][0]
        marked = {"delta": {"content": _MARK}} if "delta" in choice else {"text": _MARK}
        whole = self._event({**chunk, "choices": [{**choice, **marked}]})
        before, _, behind = whole.rpartition(encode_basestring_ascii(_MARK).encode())
        text = encode_basestring_ascii(output.text).encode()
        if before + text + behind == self._shown:
            self._frames[output.request_id] = before, behind
