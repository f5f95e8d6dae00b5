"""Messages between the engine and its callers: plain data that may cross a thread or a process.

No `Request` leaves the thread of its engine. A caller elsewhere gets a `Submitted` for each sequence
that was queued, and then `RequestOutput`s, which together hold all that a reply needs.
"""

from dataclasses import dataclass

from yaie.core.errors import YaieError
from yaie.core.failure import FailureKind, error_of
from yaie.core.logprobs import TokenLogprob
from yaie.core.params import SamplingParams
from yaie.core.request import FinishReason, Request


# ANCHOR: submitted
@dataclass(frozen=True, slots=True)
class Submitted:
    """One sequence that was queued.

    prompt_token_ids: the prompt as the engine took it, after truncation.
    index: the number of its choice among the `params.n` of its prompt.
    """

    request_id: str
    prompt_token_ids: list[int]
    params: SamplingParams
    index: int = 0

    @classmethod
    def of(cls, request: Request) -> "Submitted":
        """What a caller gets of a request."""
        prompt = request.token_ids[: request.num_prompt_tokens]
        prompt[:1] = map(int, prompt[:1])  # a salt is the engine's affair
        return cls(request.request_id, prompt, request.params, request.index)

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.prompt_token_ids)


# ANCHOR_END: submitted


# ANCHOR: request_output
# ANCHOR: request_output_fields
@dataclass(slots=True)
class RequestOutput:
    """What one step added to one request.

    text: the new text, safe to show: whole characters, nothing that may still become a stop string.
    token_ids: the new tokens; usually one, several where drafts were accepted.
    finish_reason: set in a request's last output, and only there. With it come `stop_reason` (the stop
        string or token that ended it, if one did) and, for FinishReason.ERROR, `error` and `failure`.
    logprobs: one for each of `token_ids`, if the request asks for them.
    prompt_logprobs: in the first output of a request that asks for them, one for each prompt token; None
        for the first token, which nothing precedes.
    embedding: likewise, [hidden], if it asks for `pooling`.
    num_output_tokens: generated so far, these included. num_prompt_tokens, num_cached_tokens: of the
        prompt, and how many of them came from the prefix cache.
    """

    request_id: str
    text: str
    token_ids: list[int]
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    error: str | None = None
    failure: FailureKind | None = None
    logprobs: list[TokenLogprob] | None = None
    prompt_logprobs: list[TokenLogprob | None] | None = None
    num_output_tokens: int = 0
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    embedding: list[float] | None = None
    # ANCHOR_END: request_output_fields

    @classmethod
    def of(
        cls,
        request: Request,
        text: str,
        token_ids: list[int],
        finish_reason: FinishReason | None = None,
    ) -> "RequestOutput":
        """The message about the newest `token_ids` of a request, with what its reply needs besides."""
        output = cls(
            request.request_id,
            text,
            token_ids,
            finish_reason,
            num_output_tokens=request.num_output_tokens,
            num_prompt_tokens=request.num_prompt_tokens,
            num_cached_tokens=request.num_cached_tokens,
        )
        if finish_reason is not None:
            output.stop_reason, output.error = request.stop_reason, request.error
            if finish_reason is FinishReason.ERROR:
                output.failure = request.failure or FailureKind.ENGINE
        if request.logprobs and token_ids:
            output.logprobs = request.logprobs[-len(token_ids) :]
        if request.prompt_logprobs and token_ids and request.num_output_tokens == len(token_ids):
            output.prompt_logprobs = request.prompt_logprobs
        if request.pooled is not None and request.num_output_tokens == len(token_ids) > 0:
            count = request.num_prompt_tokens if request.params.pooling == "mean" else 1
            output.embedding = (request.pooled / count).tolist()
        return output

    @property
    def exception(self) -> YaieError | None:
        """What to tell the caller of a request that failed; None of any other. See `error_of`."""
        if self.finish_reason is not FinishReason.ERROR:
            return None
        return error_of(self.failure, self.error or "The request failed in the engine.")

    def merge(self, later: "RequestOutput") -> None:
        """Take over the request's next output: both together say what this one says then."""
        self.text += later.text
        self.token_ids = self.token_ids + later.token_ids
        if later.logprobs:
            self.logprobs = (self.logprobs or []) + later.logprobs
        self.prompt_logprobs = self.prompt_logprobs or later.prompt_logprobs
        self.embedding = self.embedding or later.embedding
        self.finish_reason, self.stop_reason = later.finish_reason, later.stop_reason
        self.error, self.failure = later.error, later.failure
        self.num_output_tokens = later.num_output_tokens
        self.num_cached_tokens = later.num_cached_tokens


# ANCHOR_END: request_output
