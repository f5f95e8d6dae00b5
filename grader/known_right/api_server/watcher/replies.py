"""Another design: what each choice has said is one record, and the kinds differ by functions.

The reference keeps parallel lists and lets subclasses fill in methods; here a `Choice` knows its text,
its counts and its end, `chunks` makes a list first, and usage is summed choice by choice.
"""

import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from yaie.core.output import RequestOutput, Submitted

Json = dict[str, Any]


@dataclass(slots=True)
class Choice:
    """One request's answer so far. last: the output that ended it."""

    index: int
    text: str = ""
    begun: bool = False
    generated: int = 0
    cached: int = 0
    last: RequestOutput | None = None

    def count(self, output: RequestOutput) -> None:
        self.generated = max(self.generated, output.num_output_tokens)
        self.cached = output.num_cached_tokens
        if output.finish_reason is not None:
            self.last = output


class Reply:
    """One answer to one call."""

    id_prefix: ClassVar[str]
    whole_object: ClassVar[str]
    chunk_object: ClassVar[str]

    def __init__(
        self, model: str, requests: Sequence[Submitted], *, include_usage: bool = False
    ) -> None:
        self.id = f"{self.id_prefix}{uuid.uuid4().hex}"
        self.model = model
        self.requests = requests
        self.include_usage = include_usage
        self._created = int(time.time())
        self._choices = {r.request_id: Choice(i) for i, r in enumerate(requests)}

    def add(self, output: RequestOutput) -> None:
        """Take over an output's text."""
        raise_if_failed(output)
        choice = self._choices[output.request_id]
        choice.text += output.text
        choice.count(output)

    def result(self) -> Json:
        """The whole answer."""
        answer = self._about(self.whole_object)
        answer["choices"] = [
            {"index": choice.index, **self.said(choice.text), **ending(choice.last)}
            for choice in self._choices.values()
            if choice.last is not None
        ]
        answer["usage"] = self.usage()
        return answer

    def usage(self) -> Json:
        """OpenAI's token counts of the call, as far as its outputs have come."""
        prompt = cached = generated = 0
        for request, choice in zip(self.requests, self._choices.values(), strict=True):
            generated += choice.generated
            if request.index == 0:
                prompt += len(request.prompt_token_ids)
                cached += choice.cached
        return {
            "prompt_tokens": prompt,
            "completion_tokens": generated,
            "total_tokens": prompt + generated,
            "prompt_tokens_details": {"cached_tokens": cached},
        }

    def chunks(self, output: RequestOutput) -> Iterator[Json]:
        """The chunks that an output makes."""
        raise_if_failed(output)
        choice = self._choices[output.request_id]
        choice.count(output)
        pieces: list[Json] = []
        if not choice.begun:
            pieces += self.openings()
            choice.begun = True
        if output.text != "":
            pieces.append(self.piece(output.text))
        found = [{"index": choice.index, **told, **NOTHING} for told in pieces]
        if output.finish_reason:
            end = {
                "finish_reason": str(output.finish_reason),
                "stop_reason": output.stop_reason,
            }
            found.append({"index": choice.index, **self.piece(""), **NOTHING, **end})
        usage = {"usage": None} if self.include_usage else {}
        return iter([{**self._about(self.chunk_object), "choices": [c], **usage} for c in found])

    def usage_chunk(self) -> Json:
        """The last chunk of a stream that was asked for its usage."""
        return self._about(self.chunk_object) | {"choices": [], "usage": self.usage()}

    def _about(self, name: str) -> Json:
        return {"id": self.id, "object": name, "created": self._created, "model": self.model}

    def said(self, text: str) -> Json:
        """How a finished choice has its text."""
        raise NotImplementedError

    def piece(self, text: str) -> Json:
        """How a streamed choice has a piece of its text."""
        raise NotImplementedError

    def openings(self) -> list[Json]:
        """What comes before any text."""
        return []


NOTHING: Json = {"logprobs": None, "finish_reason": None}


class ChatReply(Reply):
    """An answer of `/v1/chat/completions`."""

    id_prefix = "chatcmpl-"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def said(self, text: str) -> Json:
        return {"message": {"role": "assistant", "content": text, "refusal": None}}

    def piece(self, text: str) -> Json:
        return {"delta": {"content": text}} if text else {"delta": {}}

    def openings(self) -> list[Json]:
        return [{"delta": {"role": "assistant", "content": ""}}]


class TextReply(Reply):
    """An answer of `/v1/completions`."""

    id_prefix = "cmpl-"
    whole_object = chunk_object = "text_completion"

    def said(self, text: str) -> Json:
        return {"text": text}

    def piece(self, text: str) -> Json:
        return {"text": text}


def ending(last: RequestOutput) -> Json:
    """What every choice of a whole answer ends with."""
    reason = str(last.finish_reason) if last.finish_reason else None
    return {"logprobs": None, "finish_reason": reason, "stop_reason": last.stop_reason}


def raise_if_failed(output: RequestOutput) -> None:
    """Raises YaieError if this is the last output of a request that failed in the engine."""
    if (error := output.exception) is not None:
        raise error
