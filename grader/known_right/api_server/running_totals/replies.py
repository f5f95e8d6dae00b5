"""Another design: a choice is written into a buffer, and the call's totals are kept up to date.

The reference keeps the newest output of each choice and adds up when asked; here an output changes three
numbers by what it has more than its predecessor. What differs between the kinds is a table of functions.
"""

import io
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from yaie.core.output import RequestOutput, Submitted

Json = dict[str, Any]


class Reply:
    """One answer to one call."""

    id_prefix: ClassVar[str]
    whole_object: ClassVar[str]
    chunk_object: ClassVar[str]
    said: ClassVar[Callable[[str], Json]]
    piece: ClassVar[Callable[[str], Json]]
    opening: ClassVar[Json | None] = None

    def __init__(
        self, model: str, requests: Sequence[Submitted], *, include_usage: bool = False
    ) -> None:
        self.id = f"{self.id_prefix}{uuid.uuid4().hex}"
        self.model, self.requests, self.include_usage = model, requests, include_usage
        self._since = int(time.time())
        self._number: dict[str, int] = {}
        for request in requests:
            self._number[request.request_id] = len(self._number)
        n = requests[0].params.n
        self._prompt = sum(r.num_prompt_tokens for i, r in enumerate(requests) if i % n == 0)
        self._completion = self._cached = 0
        self._seen = [(0, 0)] * len(requests)
        self._text: dict[int, io.StringIO] = {}
        self._end: dict[int, tuple[str | None, Any]] = {}
        self._opened: set[int] = set()

    def add(self, output: RequestOutput) -> None:
        """Take over an output."""
        number = self._count(output)
        self._text.setdefault(number, io.StringIO()).write(output.text)

    def _count(self, output: RequestOutput) -> int:
        raise_if_failed(output)
        number = self._number[output.request_id]
        generated, cached = self._seen[number]
        self._seen[number] = output.num_output_tokens, output.num_cached_tokens
        self._completion += output.num_output_tokens - generated
        if number % self.requests[0].params.n == 0:
            self._cached += output.num_cached_tokens - cached
        self._end[number] = _reason(output), output.stop_reason
        return number

    def result(self) -> Json:
        """The whole answer."""
        choices = []
        for number in range(len(self.requests)):
            text = self._text[number].getvalue() if number in self._text else ""
            reason, stop_reason = self._end.get(number, (None, None))
            choice: Json = {"index": number} | type(self).said(text)
            choices.append(choice | _end(reason, stop_reason))
        head = self._head(self.whole_object)
        head.update(choices=choices, usage=self.usage())
        return head

    def usage(self) -> Json:
        """Token counts of the call, as far as its outputs have come."""
        return {
            "completion_tokens": self._completion,
            "prompt_tokens": self._prompt,
            "prompt_tokens_details": {"cached_tokens": self._cached},
            "total_tokens": self._completion + self._prompt,
        }

    def chunks(self, output: RequestOutput) -> Iterator[Json]:
        """The chunks that an output makes: all are made here, not one by one."""
        number = self._count(output)
        blank: Json = {"index": number, "logprobs": None, "finish_reason": None}
        choices: list[Json] = []
        if number not in self._opened:
            self._opened.add(number)
            if self.opening is not None:
                choices.append(blank | {"delta": dict(self.opening["delta"])})
        if output.text != "":
            choices.append(blank | type(self).piece(output.text))
        if output.finish_reason is not None:
            choices.append(blank | type(self).piece("") | _end(*self._end[number]))
        empty: Json = {"usage": None} if self.include_usage else {}
        return iter([self._head(self.chunk_object) | {"choices": [c]} | empty for c in choices])

    def usage_chunk(self) -> Json:
        """The last chunk of a stream that was asked for its usage."""
        return self._head(self.chunk_object) | {"choices": [], "usage": self.usage()}

    def _head(self, name: str) -> Json:
        return {"id": self.id, "object": name, "created": self._since, "model": self.model}


class ChatReply(Reply):
    """An answer of `/v1/chat/completions`."""

    id_prefix = "chatcmpl-"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"
    opening: ClassVar[Json | None] = {"delta": {"role": "assistant", "content": ""}}

    @staticmethod
    def said(text: str) -> Json:
        return {"message": {"role": "assistant", "content": text, "refusal": None}}

    @staticmethod
    def piece(text: str) -> Json:
        return {"delta": {"content": text} if text else {}}


class TextReply(Reply):
    """An answer of `/v1/completions`."""

    id_prefix = "cmpl-"
    whole_object = chunk_object = "text_completion"

    @staticmethod
    def said(text: str) -> Json:
        return {"text": text}

    piece = said


def ending(last: RequestOutput) -> Json:
    """What every choice of a whole answer ends with."""
    return _end(_reason(last), last.stop_reason)


def _end(reason: str | None, stop_reason: Any) -> Json:
    return {"logprobs": None, "finish_reason": reason, "stop_reason": stop_reason}


def _reason(output: RequestOutput) -> str | None:
    return getattr(output.finish_reason, "value", None)


def raise_if_failed(output: RequestOutput) -> None:
    """Raises YaieError if this is the last output of a request that failed in the engine."""
    failed = output.exception
    if failed is not None:
        raise failed
