"""The blocks of a message's content, and the events that tell how each of them grows."""

import re
from collections.abc import Iterator
from typing import Any

from pydantic_core import from_json

from yaie.core.ranges import LARGEST

Json = dict[str, Any]

_ESCAPE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a pair, which is a character
    r"|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\."
)
UNREADABLE = "INVALID_JSON"
"""The one field of an input that no parser takes: a number of 5,000 digits. Anthropic's word for it."""


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


class OpenToolUse(OpenBlock):
    """A tool that the client is asked to use."""

    def __init__(self, index: int, call_id: str, name: str) -> None:
        super().__init__(index)
        self._id = call_id
        self._name = name

    def block(self) -> Json:
        """Of an input that was cut off by the limit, what is complete."""
        given = _as_object(self.text) if self._texts else {}
        return {"type": "tool_use", "id": self._id, "name": self._name, "input": given}

    def delta(self, text: str) -> Json:
        return {"type": "input_json_delta", "partial_json": text}


def _as_object(text: str) -> Any:
    """What a model wrote as a tool's input, in values that every client can read: it may have written
    `1e999`, which becomes the largest float, or half of a surrogate pair, which becomes U+FFFD."""
    # No parser of ours takes a half; NaN, which is no JSON, never comes here.
    whole = _ESCAPE.sub(lambda found: r"\ufffd" if found[1] else found[0], text)
    try:
        return _finite(from_json(whole, allow_partial=True))
    except ValueError:
        return {UNREADABLE: text}


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return min(max(value, -LARGEST), LARGEST)
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    return value
