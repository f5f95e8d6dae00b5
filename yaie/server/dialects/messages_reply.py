"""What a chat says, told as a message of Anthropic's API: whole, or in the events of a stream."""

import json
import uuid
from abc import abstractmethod
from collections.abc import Iterator

from pydantic_core import from_json

from yaie.server.dialects.events import EventReply, Json, OpenPart
from yaie.server.dialects.messages_body import MessagesRequest
from yaie.server.dialects.messages_errors import error_in_stream
from yaie.server.extras.reply import ExtendedReply, Told
from yaie.server.tools.events import Arguments, Call, Content, End, Reasoning

STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
UNREADABLE = "INVALID_JSON"
"""The one field of an input that cannot be told as an object. Anthropic's word for it."""


class OpenBlock(OpenPart):
    """A block of a message's content."""

    @abstractmethod
    def delta(self, text: str) -> Json:
        """One more piece."""

    def begin(self) -> Iterator[Json]:
        yield self._event("start", content_block=self.whole())

    def more(self, text: str) -> Iterator[Json]:
        if text:
            self._texts.append(text)
            yield self._event("delta", delta=self.delta(text))

    def end(self) -> Iterator[Json]:
        yield self._event("stop")

    def _event(self, what: str, **fields: Json) -> Json:
        return {"type": f"content_block_{what}", "index": self._index, **fields}


class OpenText(OpenBlock):
    """What the model says."""

    def whole(self) -> Json:
        return {"type": "text", "text": self.text}

    def delta(self, text: str) -> Json:
        return {"type": "text_delta", "text": text}


class OpenThinking(OpenBlock):
    """What the model thinks. is_shown: else it comes as an empty block."""

    def __init__(self, index: int, is_shown: bool) -> None:
        super().__init__(index)
        self._is_shown = is_shown

    def whole(self) -> Json:
        return {"type": "thinking", "thinking": self.text, "signature": ""}

    def delta(self, text: str) -> Json:
        return {"type": "thinking_delta", "thinking": text}

    def more(self, text: str) -> Iterator[Json]:
        yield from super().more(text if self._is_shown else "")

    def end(self) -> Iterator[Json]:
        # Nothing is signed, but clients wait for it.
        yield self._event("delta", delta={"type": "signature_delta", "signature": ""})
        yield from super().end()


def _as_input(text: str) -> Json:
    """The arguments of a call as an object; of some that were cut off, what is complete.

    A model may write JSON that no parser takes, or that nothing can write again: 1e999, half a surrogate
    pair, a thousand brackets. That comes as a text in an object, since a client must get one.
    """
    try:
        given: Json = from_json(text, allow_partial=True)
        json.dumps(given, allow_nan=False)
    except (ValueError, RecursionError):
        return {UNREADABLE: text}
    return given


class OpenToolUse(OpenBlock):
    """A tool that the client is asked to use."""

    def __init__(self, index: int, call_id: str, name: str) -> None:
        super().__init__(index)
        self._id = call_id
        self._name = name

    def whole(self) -> Json:
        """Of an input that was cut off by the limit, what is complete."""
        given = _as_input(self.text) if self._texts else {}
        return {"type": "tool_use", "id": self._id, "name": self._name, "input": given}

    def delta(self, text: str) -> Json:
        return {"type": "input_json_delta", "partial_json": text}


class MessageReply(EventReply):
    """One answer to one call of `/v1/messages`."""

    def __init__(self, chat: ExtendedReply, body: MessagesRequest, model: str) -> None:
        super().__init__(f"msg_{uuid.uuid4().hex}", chat)
        self._body = body
        self._model = model
        self._stop: Json = {"stop_reason": None, "stop_sequence": None}

    def encoded(self, event: Json) -> str:
        """See EventReply."""
        return json.dumps(event, allow_nan=False, separators=(",", ":"))

    def failure(self, error: Json) -> Iterator[Json]:
        """See EventReply."""
        yield error_in_stream(error)

    def _begin(self) -> Iterator[Json]:
        yield {"type": "message_start", "message": self._answer()}

    def _piece(self, told: Told) -> Iterator[Json]:
        match told.piece:
            case Reasoning(text):
                if not isinstance(self._open, OpenThinking):
                    thinking = self._body.thinking
                    is_shown = thinking is None or thinking.display != "omitted"
                    yield from self._next(OpenThinking(self._place, is_shown))
                yield from self._grow(text)
            case Content(text) if text:
                if not isinstance(self._open, OpenText):
                    yield from self._next(OpenText(self._place))
                yield from self._grow(text)
            case Call(_, name, call_id):
                yield from self._next(OpenToolUse(self._place, call_id, name))
            case Arguments(_, text):
                yield from self._grow(text)
            case End() as end:
                yield from self._close()
                self._stop = self._why(end)
                yield {"type": "message_delta", "delta": self._stop, "usage": self._tokens()}
                yield {"type": "message_stop"}

    def _why(self, end: End) -> Json:
        reason, found = STOP_REASONS[end.finish_reason], end.stop_reason
        if reason == "end_turn" and found in (self._body.stop_sequences or ()):
            return {"stop_reason": "stop_sequence", "stop_sequence": found}
        if reason == "max_tokens" and self.usage()["completion_tokens"] < self._body.max_tokens:
            reason = "model_context_window_exceeded"
        return {"stop_reason": reason, "stop_sequence": None}

    def _answer(self) -> Json:
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": list(self._done),
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
