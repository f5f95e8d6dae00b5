"""A chat completion told as a message of Anthropic's API: whole, or in the events of a stream.

It wraps the reply of a chat completion, the reference's or a learner's, and reads what that makes of
the engine's outputs. So tool calls, thoughts and constraints are told the same on both ways.
"""

import json
import uuid
from collections.abc import Iterator, Sequence

from yaie.core.contracts import Reply
from yaie.core.output import RequestOutput, Submitted
from yaie.server.messages.blocks import Json, OpenBlock, OpenText, OpenThinking, OpenToolUse
from yaie.server.messages.errors import error_in_stream
from yaie.server.messages.schemas import MessagesRequest

STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


class MessageReply:
    """One answer to one call of `/v1/messages`. See `yaie.core.contracts.Reply`."""

    include_usage = False
    """The events hold the usage anyway."""

    def __init__(self, chat: Reply, body: MessagesRequest, model: str) -> None:
        """chat: the reply of the chat completion with the same prompt."""
        self.id = f"msg_{uuid.uuid4().hex}"
        self.requests: Sequence[Submitted] = chat.requests
        self._chat = chat
        self._body = body
        self._model = model
        self._has_begun = False
        self._content: list[Json] = []
        self._open: OpenBlock | None = None
        self._num_calls = 0
        self._stop: Json = {"stop_reason": None, "stop_sequence": None}

    def add(self, output: RequestOutput) -> None:
        """Take over an output. Raises YaieError if its request failed."""
        self._chat.add(output)

    def result(self) -> Json:
        """The whole message, once its request has finished."""
        choice = self._chat.result()["choices"][0]
        for _ in self._piece({**choice, "delta": choice["message"]}):
            pass
        return self._message()

    def chunks(self, output: RequestOutput) -> Iterator[Json]:
        """The events that an output makes. Raises YaieError if the request failed."""
        for chunk in self._chat.chunks(output):
            if not self._has_begun:
                self._has_begun = True
                yield {"type": "message_start", "message": self._message()}
            yield from self._piece(chunk["choices"][0])

    def usage(self) -> Json:
        """Token counts as a chat completion has them."""
        return self._chat.usage()

    def usage_chunk(self) -> Json:
        """Not sent: see `include_usage`."""
        return self._chat.usage_chunk()

    def encoded(self, event: Json) -> str:
        """An event as JSON."""
        return json.dumps(event, allow_nan=False, separators=(",", ":"))

    def failure(self, error: Json) -> Iterator[Json]:
        """The last event of a stream that failed. error: the error object as elsewhere."""
        yield error_in_stream(error)

    def _piece(self, choice: Json) -> Iterator[Json]:
        """The events of a piece of a streamed choice, or of all of it."""
        delta = choice["delta"]
        if thought := delta.get("reasoning_content"):
            if not isinstance(self._open, OpenThinking):
                thinking = self._body.thinking
                is_shown = thinking is None or thinking.display != "omitted"
                yield from self._next(OpenThinking(self._place, is_shown))
            yield from self._grow(thought)
        if text := delta.get("content"):
            if not isinstance(self._open, OpenText):
                yield from self._next(OpenText(self._place))
            yield from self._grow(text)
        for position, call in enumerate(delta.get("tool_calls") or ()):
            yield from self._call(call, call.get("index", position))
        if choice["finish_reason"] is not None:
            yield from self._end(choice)

    def _call(self, call: Json, index: int) -> Iterator[Json]:
        if index == self._num_calls:
            self._num_calls += 1
            yield from self._next(OpenToolUse(self._place, call["id"], call["function"]["name"]))
        yield from self._grow(call["function"].get("arguments") or "")

    @property
    def _place(self) -> int:
        """Of the next block."""
        return len(self._content) + (self._open is not None)

    def _grow(self, text: str) -> Iterator[Json]:
        assert self._open is not None
        yield from self._open.more(text)

    def _next(self, block: OpenBlock) -> Iterator[Json]:
        yield from self._close()
        self._open = block
        yield from block.begin()

    def _close(self) -> Iterator[Json]:
        if self._open is not None:
            yield from self._open.end()
            self._content.append(self._open.block())
            self._open = None

    def _end(self, choice: Json) -> Iterator[Json]:
        yield from self._close()
        self._stop = self._why(choice)
        yield {"type": "message_delta", "delta": self._stop, "usage": self._tokens()}
        yield {"type": "message_stop"}

    def _why(self, choice: Json) -> Json:
        reason, found = STOP_REASONS[choice["finish_reason"]], choice.get("stop_reason")
        if reason == "end_turn" and found in (self._body.stop_sequences or ()):
            return {"stop_reason": "stop_sequence", "stop_sequence": found}
        if reason == "max_tokens" and self.usage()["completion_tokens"] < self._body.max_tokens:
            reason = "model_context_window_exceeded"
        return {"stop_reason": reason, "stop_sequence": None}

    def _message(self) -> Json:
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": list(self._content),
            **self._stop,
            "usage": self._tokens(),
        }

    def _tokens(self) -> Json:
        """The prompt is told in two parts: what was computed, and what the prefix cache held."""
        chat = self.usage()
        cached = chat["prompt_tokens_details"]["cached_tokens"]
        usage = {
            "input_tokens": chat["prompt_tokens"] - cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": cached,
            "output_tokens": chat["completion_tokens"],
        }
        if of_output := chat.get("completion_tokens_details"):
            usage["output_tokens_details"] = {"thinking_tokens": of_output["reasoning_tokens"]}
        return usage
