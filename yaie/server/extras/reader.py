"""Reads the texts of a call's choices as typed pieces, once: what all replies are made of."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from yaie.core.output import RequestOutput, Submitted
from yaie.core.request import FinishReason
from yaie.server.extras.reasoning import ReasoningFormat, ReasoningReader
from yaie.server.extras.step import Json
from yaie.server.tools import ToolFormat
from yaie.server.tools.events import Call, Content, Piece, Reasoning


class Reader:
    """Takes all text for content. Choices are known by their number (`index`).

    tells_reasoning: whether a whole message says what was thought, None included.
    """

    tells_reasoning = False

    def parts(self, index: int, output: RequestOutput) -> Iterable[RequestOutput]:
        """The outputs that an output is told as, each with its tokens."""
        return (output,)

    def read(self, index: int, output: RequestOutput) -> list[Piece]:
        """The pieces that an output decides. No content is empty."""
        return [Content(output.text)] if output.text else []

    def end(self, index: int, choice: Json) -> None:
        """Correct why a finished choice ended."""

    def count(self, usage: Json) -> Json:
        """OpenAI's token counts with what only a reader knows."""
        return usage

    def is_plain(self, index: int) -> bool:
        """Whether all text that is still to come is content, and nothing else is counted."""
        return True


class ChatReader(Reader):
    """Reads each choice: its reasoning comes first, and behind that calls are looked for."""

    def __init__(
        self,
        requests: Sequence[Submitted],
        body: Any,
        tokenizer: Any,
        *,
        tools: ToolFormat | None,
        reasoning: ReasoningFormat | None,
    ) -> None:
        """body: a ChatRequest of the API part. tools: None if it may not call any. reasoning: None if
        what the model thinks stays in the content."""
        self._tools = tools
        self._calls = None
        if tools is not None:
            functions: Mapping[str, Json] = body.callable_functions
            self._calls = tools.parsers(functions, len(requests))
        self._thoughts = None
        if reasoning is not None:
            self._thoughts = [
                ReasoningReader(reasoning, tokenizer, request.prompt_token_ids, body)
                for request in requests
            ]
            self.tells_reasoning = body.include_reasoning is not False

    def read(self, index: int, output: RequestOutput) -> list[Piece]:
        """See Reader."""
        pieces: list[Piece] = []
        text = output.text
        if self._thoughts is not None:
            thought, text = self._thoughts[index].read(output)
            pieces += [Reasoning(thought)] * (thought != "")
        if self._calls is None:
            return [*pieces, Content(text)] if text else pieces
        events = self._calls[index].push(text)
        if output.finish_reason is not None:
            is_cut = output.finish_reason is FinishReason.LENGTH
            events += self._calls[index].end(is_cut=is_cut)
        for event in events:
            if isinstance(event, Call) and self._tools is not None:
                event.call_id = self._tools.new_id()
        return [*pieces, *events]

    def end(self, index: int, choice: Json) -> None:
        """An answer that stopped after complete calls stopped for their sake."""
        stopped = choice["finish_reason"] == FinishReason.STOP.value
        if stopped and self._calls is not None and self._calls[index].has_called:
            choice["finish_reason"] = "tool_calls"

    def count(self, usage: Json) -> Json:
        """With the tokens of the reasoning, tags included."""
        if self._thoughts is None:
            return usage
        num_tokens = sum(reader.num_tokens for reader in self._thoughts)
        return {**usage, "completion_tokens_details": {"reasoning_tokens": num_tokens}}

    def is_plain(self, index: int) -> bool:
        """See Reader: once the content has begun, where no calls are looked for."""
        return self._calls is None and (self._thoughts is None or self._thoughts[index].is_over)
