"""The blocks of a message's content, and the events that tell how each of them grows."""

import json
from collections.abc import Iterator
from typing import Any

from pydantic_core import from_json

Json = dict[str, Any]

UNREADABLE = "INVALID_JSON"
"""The one field of an input that cannot be told as an object. Anthropic's word for it."""


class OpenBlock:
    """A block that is being made. It knows its events."""

    def __init__(self, index: int) -> None:
        """`index`: its place in the content."""
        self._index = index
        self._texts: list[str] = []

    @property
    def text(self) -> str:
        """All of it that is there."""
        return "".join(self._texts)

    def block(self) -> Json:
        """The block as it is now; before the first piece, what its first event holds."""
        raise NotImplementedError

    def delta(self, text: str) -> Json:
        """One more piece."""
        raise NotImplementedError

    def begin(self) -> Iterator[Json]:
        """Events before the first piece."""
        yield self._event("start", content_block=self.block())

    def more(self, text: str) -> Iterator[Json]:
        """Events of one more piece."""
        if text:
            self._texts.append(text)
            yield self._event("delta", delta=self.delta(text))

    def end(self) -> Iterator[Json]:
        """Events after the last piece."""
        yield self._event("stop")

    def _event(self, what: str, **fields: Json) -> Json:
        return {"type": f"content_block_{what}", "index": self._index, **fields}


class OpenText(OpenBlock):
    """What the model says."""

    def block(self) -> Json:
        return {"type": "text", "text": self.text}

    def delta(self, text: str) -> Json:
        return {"type": "text_delta", "text": text}


class OpenThinking(OpenBlock):
    """What the model thinks. is_shown: else it comes as an empty block."""

    def __init__(self, index: int, is_shown: bool) -> None:
        super().__init__(index)
        self._is_shown = is_shown

    def block(self) -> Json:
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

    def block(self) -> Json:
        """Of an input that was cut off by the limit, what is complete."""
        given = _as_input(self.text) if self._texts else {}
        return {"type": "tool_use", "id": self._id, "name": self._name, "input": given}

    def delta(self, text: str) -> Json:
        return {"type": "input_json_delta", "partial_json": text}
