"""The reply around lab 8's: tells what a body asks for beyond plain text.

Lab 8's reply makes plain answers and the envelope of every chunk. Content goes through it; a chunk of
any other piece is the choice's first chunk with another delta.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from yaie.core.contracts import Reply
from yaie.core.output import RequestOutput, Submitted
from yaie.core.request import FinishReason
from yaie.server.extras.reader import Reader
from yaie.server.extras.step import Json, Step
from yaie.server.tools.events import Arguments, Call, Content, End, Piece, Reasoning, merged


@dataclass(slots=True)
class Told:
    """A piece, for a reply that has a shape of its own. logprobs: the entries of the tokens that are due
    with it, as a chat completion has them; empty if they were not asked for."""

    piece: Piece | End
    logprobs: list[Json] = field(default_factory=list)


@dataclass(slots=True)
class _Choice:
    """envelope: its first chunk, as lab 8's reply made it. pieces, end: of a whole answer."""

    envelope: Json | None = None
    pieces: list[Piece] = field(default_factory=list)
    end: End | None = None


class ExtendedReply:
    """See `yaie.core.contracts.Reply`."""

    def __init__(
        self, reply: Reply, reader: Reader, steps: Sequence[Step] = (), *, tells_usage: bool = False
    ) -> None:
        """reply: lab 8's. reader: reads its choices. steps: in the order in which they add.
        tells_usage: every chunk has the counts so far. Load generators count tokens by it."""
        self._reply = reply
        self._reader = reader
        self._steps = steps
        self._tells_usage = tells_usage
        self.id: str = reply.id
        self.requests: Sequence[Submitted] = reply.requests
        self.include_usage: bool = reply.include_usage
        self._index = {request.request_id: index for index, request in enumerate(self.requests)}
        self._choices = [_Choice() for _ in self.requests]

    def add(self, output: RequestOutput) -> None:
        """Take over an output. Raises YaieError if its request failed."""
        if output.finish_reason is FinishReason.ERROR:
            self._reply.add(output)  # raises
        index = self._index[output.request_id]
        for part in self._reader.parts(index, output):
            pieces = self._reader.read(index, part)
            content = "".join(piece.text for piece in pieces if isinstance(piece, Content))
            self._reply.add(replace(part, text=content))
            self._choices[index].pieces += pieces
            for step in self._steps:
                step.keep(index, part)
        if output.finish_reason is not None:
            self._choices[index].end = self._end(index, output)

    def result(self) -> Json:
        """The whole answer."""
        return self._result(in_rows=False)

    def result_in_rows(self) -> Json:
        """`result`, of which long lists may be Rows: for an answer that is written in slices."""
        return self._result(in_rows=True)

    def _result(self, *, in_rows: bool) -> Json:
        answer = self._reply.result()
        for shape in answer["choices"]:
            index = shape["index"]
            if "message" in shape:
                self._tell(shape["message"], merged(self._choices[index].pieces))
            self._reader.end(index, shape)
        for step in self._steps:
            step.add_to_answer(answer, in_rows=in_rows)
        answer["usage"] = self.usage()
        return answer

    def chunks(self, output: RequestOutput) -> Iterator[Json]:
        """The chunks that an output makes."""
        if output.finish_reason is FinishReason.ERROR:
            yield from self._reply.chunks(output)  # raises
        index = self._index[output.request_id]
        usage: Json | None = None
        for part in self._reader.parts(index, output):
            for step in self._steps:
                step.keep(index, part)
            for chunk, is_due in self._chunks(index, part):
                for step in self._steps:
                    step.add_to_chunk(chunk, index, is_due)
                if self._tells_usage:
                    usage = usage or self.usage()  # not for each chunk: it counts all choices
                    chunk["usage"] = usage
                yield chunk

    def told(self, output: RequestOutput) -> list[Told]:
        """The pieces of an output instead of its chunks. Raises YaieError if its request failed."""
        self._reply.add(replace(output, text=""))  # raises, and counts
        index = self._index[output.request_id]
        for step in self._steps:
            step.keep(index, output)
        told = [Told(piece, self._entries(index)) for piece in self._reader.read(index, output)]
        if output.finish_reason is not None:
            told.append(Told(self._end(index, output), self._entries(index)))
        return told

    def whole(self, index: int = 0) -> list[Told]:
        """The pieces of a whole answer instead of `result`, of one choice that has ended."""
        choice = self._choices[index]
        assert choice.end is not None
        return [
            Told(piece, self._entries(index) if isinstance(piece, Content) else [])
            for piece in (*merged(choice.pieces), choice.end)
        ]

    def _entries(self, index: int) -> list[Json]:
        return [entry for step in self._steps for entry in step.entries(index)]

    def _end(self, index: int, output: RequestOutput) -> End:
        assert output.finish_reason is not None
        choice: Json = {"finish_reason": output.finish_reason.value}
        self._reader.end(index, choice)
        return End(choice["finish_reason"], output.stop_reason)

    def usage(self) -> Json:
        """OpenAI's token counts of the call, as far as its outputs have come."""
        return self._reader.count(self._reply.usage())

    def usage_chunk(self) -> Json:
        """The last chunk of a stream that was asked for its usage."""
        return {**self._reply.usage_chunk(), "usage": self.usage()}

    def passes(self, output: RequestOutput) -> bool:
        """Whether this output, which `chunks` has seen, and all that follow it in its choice are lab 8's
        affair alone: nothing is told, held back or counted beyond their text."""
        index = self._index[output.request_id]
        return not self._steps and not self._tells_usage and self._reader.is_plain(index)

    def _chunks(self, index: int, output: RequestOutput) -> Iterator[tuple[Json, bool]]:
        """The chunks of an output, each with whether it has text or an end: content as ever, of a call
        first its name, then its arguments in pieces."""
        pieces, rest = self._reader.read(index, output), ""
        if pieces and isinstance(last := pieces[-1], Content):
            rest = last.text
            pieces.pop()
        is_counted = False
        for piece in pieces:
            text = piece.text if isinstance(piece, Content) else ""
            if text or not is_counted:  # without text it counts, and makes the envelope
                more = replace(output, text=text, finish_reason=None)
                yield from self._plain(index, more)
                is_counted = True
            if not isinstance(piece, Content):
                yield self._enveloped(index, piece), True
        yield from self._plain(index, replace(output, text=rest))

    def _plain(self, index: int, output: RequestOutput) -> Iterator[tuple[Json, bool]]:
        """The chunks of an output that is content from end to end."""
        choice = self._choices[index]
        for chunk in self._reply.chunks(output):
            shape = chunk["choices"][0]
            if choice.envelope is None:
                choice.envelope = {**chunk, "choices": [{**shape}]}
            is_end = shape["finish_reason"] is not None
            if is_end:
                self._reader.end(index, shape)
            yield chunk, is_end or _has_text(shape)

    def _enveloped(self, index: int, piece: Reasoning | Call | Arguments) -> Json:
        """The chunk of a piece of which lab 8's reply does not know."""
        envelope = self._choices[index].envelope
        assert envelope is not None, "a streamed chat begins with a chunk that names the role"
        return {**envelope, "choices": [{**envelope["choices"][0], "delta": _delta(piece)}]}

    def _tell(self, message: Json, pieces: list[Piece]) -> None:
        """Add to a whole message what lab 8's reply does not know of."""
        thought, calls = None, list[Json]()
        for piece in pieces:
            match piece:
                case Reasoning(text):
                    thought = text
                case Call():
                    calls.append(_call(piece))
                case Arguments(index, text):
                    calls[index]["function"]["arguments"] = text
        if calls:
            message["content"] = message["content"] or None
            message["tool_calls"] = calls
        if self._reader.tells_reasoning:
            message |= _thought(thought)


def _delta(piece: Reasoning | Call | Arguments) -> Json:
    """What a piece adds to a streamed message."""
    match piece:
        case Reasoning(text):
            return _thought(text)
        case Call(index):
            return {"tool_calls": [{"index": index, **_call(piece)}]}
        case Arguments(index, text):
            return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}


def _thought(text: str | None) -> Json:
    """Under both names by which clients look for it: DeepSeek's and many a server's, and vLLM's."""
    return {"reasoning_content": text, "reasoning": text}


def _call(call: Call) -> Json:
    """A call without its arguments."""
    return {
        "id": call.call_id,
        "type": "function",
        "function": {"name": call.name, "arguments": ""},
    }


def _has_text(choice: Json) -> bool:
    """Whether a piece of a streamed choice says something, beyond its role."""
    delta = choice.get("delta")
    return bool(choice.get("text") if delta is None else delta.get("content"))
