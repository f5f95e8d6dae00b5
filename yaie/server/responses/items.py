"""The items of a response's output, and the events that tell how each of them grows."""

import uuid
from collections.abc import Iterator
from typing import Any, ClassVar

Json = dict[str, Any]


def new_id(prefix: str) -> str:
    """An identifier that no other answer has."""
    return prefix + uuid.uuid4().hex


class OpenItem:
    """An item that is being made. It knows its events, all but their numbers."""

    prefix: ClassVar[str]

    def __init__(self, index: int) -> None:
        """`index`: its place in the output."""
        self.id = new_id(self.prefix)
        self._index = index
        self._texts: list[str] = []

    @property
    def text(self) -> str:
        """All of it that is there."""
        return "".join(self._texts)

    def item(self, status: str) -> Json:
        """The item as it is now."""
        raise NotImplementedError

    def begin(self) -> Iterator[Json]:
        """Events before the first piece."""
        yield self._whole("added", "in_progress")

    def more(self, text: str, logprobs: list[Json]) -> Iterator[Json]:
        """Events of one more piece."""
        raise NotImplementedError

    def end(self, status: str) -> Iterator[Json]:
        """Events after the last piece. status: "completed" or "incomplete"."""
        yield self._whole("done", status)

    def _whole(self, what: str, status: str) -> Json:
        item = self.item(status)
        return {"type": f"response.output_item.{what}", "output_index": self._index, "item": item}

    def _within(self, type: str, **fields: Any) -> Json:
        where = {"item_id": self.id, "output_index": self._index}
        return {"type": f"response.{type}", **where, **fields}


class OpenMessage(OpenItem):
    """What the model says: one part of text."""

    prefix = "msg_"

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self._logprobs: list[Json] = []

    def item(self, status: str) -> Json:
        content = [] if status == "in_progress" else [self._part()]
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": content,
        }

    def begin(self) -> Iterator[Json]:
        yield from super().begin()
        yield self._within("content_part.added", content_index=0, part=self._part())

    def more(self, text: str, logprobs: list[Json]) -> Iterator[Json]:
        self._texts.append(text)
        self._logprobs += logprobs
        piece = {"content_index": 0, "delta": text, "logprobs": logprobs}
        yield self._within("output_text.delta", **piece)

    def end(self, status: str) -> Iterator[Json]:
        said = {"content_index": 0, "text": self.text, "logprobs": list(self._logprobs)}
        yield self._within("output_text.done", **said)
        yield self._within("content_part.done", content_index=0, part=self._part())
        yield from super().end(status)

    def _part(self) -> Json:
        return {
            "type": "output_text",
            "text": self.text,
            "annotations": [],
            "logprobs": list(self._logprobs),
        }


class OpenReasoning(OpenItem):
    """What the model thinks before it answers."""

    prefix = "rs_"

    def item(self, status: str) -> Json:
        content = [] if status == "in_progress" else [self._part()]
        return {
            "id": self.id,
            "type": "reasoning",
            "summary": [],
            "content": content,
            "status": status,
        }

    def begin(self) -> Iterator[Json]:
        yield from super().begin()
        yield self._within("content_part.added", content_index=0, part=self._part())

    def more(self, text: str, logprobs: list[Json]) -> Iterator[Json]:
        self._texts.append(text)
        yield self._within("reasoning_text.delta", content_index=0, delta=text)

    def end(self, status: str) -> Iterator[Json]:
        yield self._within("reasoning_text.done", content_index=0, text=self.text)
        yield self._within("content_part.done", content_index=0, part=self._part())
        yield from super().end(status)

    def _part(self) -> Json:
        return {"type": "reasoning_text", "text": self.text}


class OpenCall(OpenItem):
    """A function that the model asks the client to call."""

    prefix = "fc_"

    def __init__(self, index: int, call_id: str, name: str) -> None:
        super().__init__(index)
        self._call_id = call_id
        self._name = name

    def item(self, status: str) -> Json:
        return {
            "id": self.id,
            "type": "function_call",
            "call_id": self._call_id,
            "name": self._name,
            "arguments": self.text,
            "status": status,
        }

    def more(self, text: str, logprobs: list[Json]) -> Iterator[Json]:
        if text:
            self._texts.append(text)
            yield self._within("function_call_arguments.delta", delta=text)

    def end(self, status: str) -> Iterator[Json]:
        call = {"name": self._name, "arguments": self.text}
        yield self._within("function_call_arguments.done", **call)
        yield from super().end(status)
