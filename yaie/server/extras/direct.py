"""Plain pieces of a streamed answer, written to the connection in the moment the engine yields them.

    OpenStreams.put -> RequestStream.put -> Direct.take -> PieceWriter.write
                            |
                            | what is not taken
                            v
                       the stream's task -> reply.chunks -> ASGI

Of a plain answer's chunks only the text differs. `Direct` looks at the first one of each choice that
goes the usual way, and keeps what stands before and behind its text; from then on it takes pieces, while
the stream's task has nothing to do. Beginnings, ends, errors and whatever a slow client has left behind
go the usual way: there outputs are merged, and a task can wait.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from json.encoder import encode_basestring_ascii

from yaie.core.contracts import Reply
from yaie.core.output import RequestOutput, Submitted
from yaie.server.extras.reply import ExtendedReply
from yaie.server.extras.step import Json
from yaie.server.pieces import PieceWriter

_MARK = "\0"


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
