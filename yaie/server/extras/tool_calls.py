"""Calls of tools in OpenAI's shape: `message.tool_calls`, and `delta.tool_calls` of streams."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from yaie.core.contracts import Reply
from yaie.core.output import RequestOutput
from yaie.core.request import FinishReason
from yaie.server.extras.wrapper import Json, Wrapper, has_content, without_tokens
from yaie.server.tools import ToolFormat
from yaie.server.tools.events import Arguments, Call, Content, Event
from yaie.server.tools.parser import CallParser

PLACE = "."
"""The text of a piece whose delta will be a call: a reply says nothing for an output without text."""


@dataclass(slots=True)
class _Choice:
    """What was read of one answer so far, texts in pieces. calls: id, name and arguments of each."""

    parser: CallParser
    content: list[str] = field(default_factory=list)
    calls: list[tuple[str, str, list[str]]] = field(default_factory=list)


class ToolCalls(Wrapper):
    """Takes the calls out of the text."""

    def __init__(
        self, reply: Reply, tool_format: ToolFormat, functions: Mapping[str, Json]
    ) -> None:
        """functions: that may be called, each with the schema of its arguments."""
        super().__init__(reply)
        self._format = tool_format
        parsers = tool_format.parsers(functions, len(self.requests))
        self._choices = [_Choice(parser) for parser in parsers]

    def add(self, output: RequestOutput) -> None:
        """Take over an output. Raises YaieError if its request failed."""
        super().add(output)
        choice = self._choices[self.index_of(output)]
        for event in _events(choice.parser, output):
            match event:
                case Content(text):
                    choice.content.append(text)
                case Call(_, name):
                    choice.calls.append((self._format.new_id(), name, []))
                case Arguments(index, text):
                    choice.calls[index][2].append(text)

    def result(self) -> Json:
        """The whole answer."""
        answer = self._reply.result()
        for shape in answer["choices"]:
            choice = self._choices[shape["index"]]
            if choice.calls:
                shape["message"]["content"] = "".join(choice.content) or None
                shape["message"]["tool_calls"] = [_call(*call) for call in choice.calls]
            _tell_reason(shape, choice.parser)
        return answer

    def chunks(self, output: RequestOutput) -> Iterator[Json]:
        """The chunks: of content as ever, of a call first its name, then its arguments in pieces."""
        if output.finish_reason is FinishReason.ERROR:
            yield from self._reply.chunks(output)
            return
        parser = self._choices[self.index_of(output)].parser
        rest = output  # its tokens travel with the first piece
        for event in _events(parser, output):
            text = event.text if isinstance(event, Content) else PLACE
            piece, rest = replace(rest, text=text, finish_reason=None), without_tokens(rest)
            for chunk in self._reply.chunks(piece):
                shape = chunk["choices"][0]
                if has_content(shape) and not isinstance(event, Content):
                    shape["delta"] = {"tool_calls": [self._delta(event)]}
                yield chunk
        for chunk in self._reply.chunks(replace(rest, text="")):
            _tell_reason(chunk["choices"][0], parser)
            yield chunk

    def _delta(self, event: Call | Arguments) -> Json:
        if isinstance(event, Arguments):
            return {"index": event.index, "function": {"arguments": event.text}}
        return {
            "index": event.index,
            "id": self._format.new_id(),
            "type": "function",
            "function": {"name": event.name, "arguments": ""},
        }


def _call(number: str, name: str, arguments: list[str]) -> Json:
    function = {"name": name, "arguments": "".join(arguments)}
    return {"id": number, "type": "function", "function": function}


def _events(parser: CallParser, output: RequestOutput) -> list[Event]:
    events = parser.push(output.text)
    return events if output.finish_reason is None else events + parser.end()


def _tell_reason(shape: Json, parser: CallParser) -> None:
    """An answer that stopped after complete calls stopped for their sake."""
    if shape["finish_reason"] == FinishReason.STOP.value and parser.has_called:
        shape["finish_reason"] = "tool_calls"
