"""The reply around a reply, which passes everything on: what the others begin with."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from yaie.core.contracts import Reply
from yaie.core.output import RequestOutput, Submitted

Json = dict[str, Any]


class Wrapper:
    """See `yaie.core.contracts.Reply`. in_rows: whether long lists of `result` shall be Rows."""

    in_rows = False

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self.id: str = reply.id
        self.requests: Sequence[Submitted] = reply.requests
        self.include_usage: bool = reply.include_usage
        self._index = {request.request_id: index for index, request in enumerate(self.requests)}

    def index_of(self, output: RequestOutput) -> int:
        """The number of the choice that an output belongs to."""
        return self._index[output.request_id]

    def add(self, output: RequestOutput) -> None:
        """Take over an output. Raises YaieError if its request failed."""
        self._reply.add(output)

    def result(self) -> Json:
        """The whole answer."""
        return self._reply.result()

    def result_in_rows(self) -> Json:
        """`result`, of which long lists may be Rows: for an answer that is written in slices."""
        reply: Reply = self
        while isinstance(reply, Wrapper):
            reply.in_rows = True
            reply = reply._reply
        return self.result()

    def chunks(self, output: RequestOutput) -> Iterator[Json]:
        """The chunks that an output makes."""
        yield from self._reply.chunks(output)

    def passes(self, output: RequestOutput) -> bool:
        """Whether this output, which `chunks` has seen, and all that follow it in its choice are the
        plain reply's affair alone: nothing is told, held back or counted beyond their text."""
        return False

    def usage(self) -> Json:
        """OpenAI's token counts of the call, as far as its outputs have come."""
        return self._reply.usage()

    def usage_chunk(self) -> Json:
        """The last chunk of a stream that was asked for its usage."""
        return self._reply.usage_chunk()


def without_tokens(output: RequestOutput) -> RequestOutput:
    """An output whose tokens have been told already, or are not to be. What it counts stays."""
    return replace(output, token_ids=[], logprobs=None)


def has_content(choice: Json) -> bool:
    """Whether a piece of a streamed choice says something, beyond its role."""
    delta = choice.get("delta")
    return bool(choice.get("text") if delta is None else delta.get("content"))
