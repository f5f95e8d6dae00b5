"""How pieces of an answer become bytes of HTTP."""

import h11
from h11._writers import ChunkedWriter


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
