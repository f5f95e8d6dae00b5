"""Answers in OpenAI's shape, as plain dicts.

`LLMEngine.chat_completion` and the HTTP server build their answers here, so that both say the same.
A `Reply` is fed the outputs of the requests of one call, in the order in which the engine gives
them: `add` and `result` make one whole answer, `chunks` and `usage_chunk` make a streamed one.

Rules of a streamed answer: a choice's first chunk names the role (chat only), `finish_reason` stands
only in its last chunk, and the usage chunk has no choices and comes after all of them.
"""

import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from yaie.core.errors import YaieError
from yaie.core.request import FinishReason, Request, RequestOutput

Json = dict[str, Any]


class Reply:
    """One answer to one call. Choices are numbered as `requests` are: by prompt, then by `n`."""

    id_prefix: ClassVar[str]
    whole_object: ClassVar[str]
    chunk_object: ClassVar[str]

    def __init__(
        self, model: str, requests: Sequence[Request], *, include_usage: bool = False
    ) -> None:
        """`include_usage`: a usage chunk will follow, which the other chunks announce with null."""
        self.id = self.id_prefix + uuid.uuid4().hex
        self.model = model
        self.requests = requests
        self.include_usage = include_usage
        self._created = int(time.time())
        self._index = {request.request_id: index for index, request in enumerate(requests)}
        self._texts: list[list[str]] = [[] for _ in requests]
        self._begun = [False] * len(requests)

    def add(self, output: RequestOutput) -> None:
        """Take over an output. Raises YaieError if its request failed."""
        _raise_if_failed(output)
        self._texts[self._index[output.request.request_id]].append(output.text)

    def result(self) -> Json:
        """The whole answer, once every request has finished."""
        choices = [
            self._choice(index, "".join(self._texts[index]), request)
            for index, request in enumerate(self.requests)
        ]
        return {**self._head(self.whole_object), "choices": choices, "usage": usage(self.requests)}

    def chunks(self, output: RequestOutput) -> Iterator[Json]:
        """The chunks that an output makes; none while its text is held back.

        Raises YaieError if its request failed.
        """
        _raise_if_failed(output)
        index = self._index[output.request.request_id]
        if not self._begun[index]:
            self._begun[index] = True
            yield from (self._chunk(choice) for choice in self._first_choices(index))
        if output.text:
            yield self._chunk(self._delta_choice(index, output.text))
        if output.finish_reason is not None:
            choice = self._delta_choice(index, "")
            choice["finish_reason"] = output.finish_reason.value
            choice["stop_reason"] = output.request.stop_reason
            yield self._chunk(choice)

    def usage_chunk(self) -> Json:
        """The last chunk of a stream that was asked for its usage."""
        return {**self._head(self.chunk_object), "choices": [], "usage": usage(self.requests)}

    def _chunk(self, choice: Json) -> Json:
        chunk = {**self._head(self.chunk_object), "choices": [choice]}
        if self.include_usage:
            chunk["usage"] = None
        return chunk

    def _head(self, name: str) -> Json:
        return {"id": self.id, "object": name, "created": self._created, "model": self.model}

    def _choice(self, index: int, text: str, request: Request) -> Json:
        """A finished choice of a whole answer."""
        raise NotImplementedError

    def _first_choices(self, index: int) -> list[Json]:
        """What a streamed choice begins with, before any text."""
        raise NotImplementedError

    def _delta_choice(self, index: int, text: str) -> Json:
        """A piece of a streamed choice."""
        raise NotImplementedError


class ChatReply(Reply):
    """An answer of `/v1/chat/completions`."""

    id_prefix = "chatcmpl-"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def _choice(self, index: int, text: str, request: Request) -> Json:
        message = {"role": "assistant", "content": text, "refusal": None}
        return {"index": index, "message": message, **_ending(request)}

    def _first_choices(self, index: int) -> list[Json]:
        return [self._delta(index, {"role": "assistant", "content": ""})]

    def _delta_choice(self, index: int, text: str) -> Json:
        return self._delta(index, {"content": text} if text else {})

    def _delta(self, index: int, delta: Json) -> Json:
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}


class TextReply(Reply):
    """An answer of `/v1/completions`."""

    id_prefix = "cmpl-"
    whole_object = "text_completion"
    chunk_object = "text_completion"

    def _choice(self, index: int, text: str, request: Request) -> Json:
        return {"index": index, "text": text, **_ending(request)}

    def _first_choices(self, index: int) -> list[Json]:
        return []

    def _delta_choice(self, index: int, text: str) -> Json:
        return {"index": index, "text": text, "logprobs": None, "finish_reason": None}


def usage(requests: Sequence[Request]) -> Json:
    """Token counts of one call. The `n` siblings of a prompt share it, so it counts once."""
    prompts = requests[:: requests[0].params.n]
    prompt_tokens = sum(request.num_prompt_tokens for request in prompts)
    completion_tokens = sum(request.num_output_tokens for request in requests)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {
            "cached_tokens": sum(request.num_cached_tokens for request in prompts)
        },
    }


def _ending(request: Request) -> Json:
    reason = request.finish_reason
    return {
        "logprobs": None,
        "finish_reason": None if reason is None else reason.value,
        "stop_reason": request.stop_reason,
    }


def _raise_if_failed(output: RequestOutput) -> None:
    if output.finish_reason is FinishReason.ERROR:
        raise YaieError(output.request.error or "The request failed in the engine.")
