"""Requests that their caller waits for: text in, text out, without a server."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from yaie.backends.base import Backend
from yaie.core.contracts import Reply
from yaie.core.conversation import PromptOptions
from yaie.core.errors import InvalidRequestError, YaieError
from yaie.core.output import RequestOutput, Submitted
from yaie.core.params import SamplingParams
from yaie.core.request import FinishReason, Request
from yaie.engine.input.processor import Prompt
from yaie.engine.output_router import OutputRouter
from yaie.models.loader import LoadedModel

Json = dict[str, Any]


class Offline(ABC):
    """Runs requests to their end, for an engine that can take a step. Others may have requests in it."""

    backend: Backend
    _model: LoadedModel
    _router: OutputRouter | None = None  # while `generate` or a stream takes turns

    @abstractmethod
    def add_request(self, prompt: Prompt, params: SamplingParams | None = None) -> list[Request]:
        """See LLMEngine."""

    @abstractmethod
    def _queue(self, prompt: Prompt, params: SamplingParams) -> list[Request]:
        """`add_request` for a caller who will wait, however long the queue."""

    @abstractmethod
    def step(self) -> list[RequestOutput]:
        """See LLMEngine."""

    @abstractmethod
    def abort(self, request_id: str) -> bool:
        """See LLMEngine."""

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        **sampling: Any,
    ) -> list[str]:
        """Complete every prompt; `n` texts for each, in order. params: for all, or one for each prompt.
        sampling: fields of SamplingParams, for all.

        Raises what `add_request` does before anything runs, and YaieError if a request fails.
        """
        several = isinstance(prompts, list | tuple) and not all(type(p) is int for p in prompts)
        every: Any = prompts if several else [prompts]
        given: Any = list(params) if isinstance(params, list | tuple) else [params] * len(every)
        if len(given) != len(every):
            raise InvalidRequestError(
                f"params has {len(given)} entries for {len(every)} prompts: give one for each, or one "
                "for all",
                param="params",
            )
        each = [self._sampling_params(sampling, base=base) for base in given]
        requests: list[Request] = []
        try:
            for prompt, own in zip(every, each, strict=True):
                requests += self._queue(prompt, own)
            texts: dict[str, list[str]] = {request.request_id: [] for request in requests}
            for output in self._run(requests):
                texts[output.request_id].append(output.text)
        except BaseException:
            self._abort_all(requests)
            raise
        return ["".join(texts[request.request_id]) for request in requests]

    def encode_chat(
        self,
        messages: list[Json],
        tools: list[Json] | None = None,
        options: PromptOptions | None = None,
    ) -> list[int]:
        """The prompt of a conversation, by the model's chat template. Raises InvalidRequestError."""
        tokenizer = self._model.tokenizer
        return tokenizer.encode_parts(tokenizer.chat_text(messages, tools, options))

    def chat_completion(self, messages: list[Json], **sampling: Any) -> Json:
        """Answer a conversation; returns an OpenAI `chat.completion`."""
        requests, reply = self._asked(messages, sampling)
        for output in self._run(requests):
            reply.add(output)
        return reply.result()

    def chat_completion_stream(self, messages: list[Json], **sampling: Any) -> Iterator[Json]:
        """Answer a conversation; yields OpenAI `chat.completion.chunk`s as the text comes.

        Closing the iterator ends the request.
        """
        requests, reply = self._asked(messages, sampling)
        for output in self._run(requests):
            yield from reply.chunks(output)

    def _asked(self, messages: list[Json], sampling: Json) -> tuple[list[Request], Reply]:
        """Queue a conversation; returns its requests, and what makes the reply of their outputs."""
        requests = self.add_request(self.encode_chat(messages), self._sampling_params(sampling))
        submitted = [Submitted.of(request) for request in requests]
        return requests, self.backend.parts["api_server"].ChatReply(self._model.name, submitted)

    def _run(self, requests: list[Request]) -> Iterator[RequestOutput]:
        """Step until these requests are over; aborts them if the caller stops or something fails.

        Raises YaieError if one of them fails.
        """
        router = self._router = self._router or OutputRouter()
        claim = router.claim(requests)
        try:
            while True:
                for output in claim.take():
                    if output.finish_reason is FinishReason.ERROR:
                        raise YaieError(output.error or "the request failed")
                    yield output
                if not claim.num_unfinished:
                    return
                router.put(self.step())  # what others wait for goes back
        finally:
            self._abort_all(requests)
            if router.is_idle and self._router is router:
                self._router = None

    def _sampling_params(self, given: Json, base: SamplingParams | None = None) -> SamplingParams:
        """What was given on top of `base`, or of the model's defaults. Raises InvalidRequestError."""
        for name in given:
            if name not in SamplingParams.__dataclass_fields__:
                raise InvalidRequestError(f"no sampling parameter is called {name!r}", param=name)
        if base is not None:
            if not isinstance(base, SamplingParams):
                raise InvalidRequestError(
                    f"params is {type(base).__name__}: give SamplingParams, or its fields by name",
                    param="params",
                )
            return replace(base, **given)
        return SamplingParams(**(self._model.sampling_defaults | given))

    def _abort_all(self, requests: list[Request]) -> None:
        for request in requests:
            self.abort(request.request_id)
