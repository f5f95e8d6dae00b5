"""One sequence on its way through the engine, and what comes out of it."""

from dataclasses import dataclass, field
from typing import Any

from yaie.core.compat import StrEnum
from yaie.core.failure import FailureKind as FailureKind
from yaie.core.logprobs import TokenLogprob as TokenLogprob
from yaie.core.params import SamplingParams


class RequestStatus(StrEnum):
    """The state of a request. PREEMPTED lost its blocks; SWAPPED has them in the host pool."""

    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    SWAPPED = "swapped"
    FINISHED = "finished"


class FinishReason(StrEnum):
    """Why a request ended, in OpenAI's words where they have one."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"


class _Referable:
    """Slots leave out what weak references need."""

    __slots__ = ("__weakref__",)


@dataclass(slots=True, eq=False)
class Request(_Referable):
    """One sequence and its state. Compared by identity; `request_id` is unique in an engine.

    token_ids: prompt and output in one list; output starts at `num_prompt_tokens`.
    num_computed_tokens: how many leading tokens have their K and V in the cache, or will have them when
        the steps in flight have ended. The next step computes the tokens from here on, so prefill,
        chunked prefill, decode and recomputation after a preemption are one thing with different token
        counts.
    num_in_flight: how many of the computed tokens belong to steps whose result has not been read.
    num_output_placeholders: tokens that steps in flight sample. They count in `num_tokens` before they
        are known.
    num_cached_tokens: prompt tokens taken from the prefix cache when it was first admitted.
    seed: of this request's draws (64 bits); never None, the engine picks one if the client did not.
    priority: smaller goes first; ties go by `arrival` (a running number given by the engine).
    fork_of: the sibling whose prompt blocks this one shares (`n` > 1), or None.
    index: the number of its choice among the `n` of its prompt.
    stop_reason: the stop string or token id that ended it, if one did.
    error, failure: why it failed, in words and by kind.
    arrival_time, scheduled_time, first_token_time: when it came, had its first turn and got its first
        token, on the clock of `time.monotonic`; the last two are None until then.
    logprobs: one for each output token, if `params.logprobs` asks for it.
    prompt_logprobs: one for each prompt token, if `params.prompt_logprobs` asks for it; None for the
        first, before which nothing stands. Complete with the first output. Of `n` siblings the first
        has it.
    pooled: the sum of the hidden states that `params.pooling` asks for, so far: [hidden] float32.
    matcher: what follows the output through the grammar of `params.constraint`; the engine's affair.
    """

    request_id: str
    token_ids: list[int]
    params: SamplingParams
    seed: int = 0
    priority: int = 0
    arrival: int = 0
    fork_of: "Request | None" = None
    index: int = 0
    num_prompt_tokens: int = field(init=False)
    num_computed_tokens: int = 0
    num_in_flight: int = 0
    num_output_placeholders: int = 0
    num_cached_tokens: int = 0
    num_preemptions: int = 0
    max_tokens: int = 0
    status: RequestStatus = RequestStatus.WAITING
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    error: str | None = None
    failure: FailureKind | None = None
    arrival_time: float = 0.0
    scheduled_time: float | None = None
    first_token_time: float | None = None
    logprobs: list[TokenLogprob] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprob | None] = field(default_factory=list)
    pooled: Any = None
    matcher: Any = None

    def __post_init__(self) -> None:
        self.num_prompt_tokens = len(self.token_ids)

    @property
    def num_tokens(self) -> int:
        """Prompt and output tokens, including those that steps in flight sample."""
        return len(self.token_ids) + self.num_output_placeholders

    @property
    def num_settled_tokens(self) -> int:
        """Leading tokens whose K and V a step with a result has computed: what others may be given.

        Tokens that were dropped after the end (`drop_last`) are not among them.
        """
        settled = self.num_computed_tokens - self.num_in_flight
        return max(0, min(settled, len(self.token_ids)))

    @property
    def has_settled_prompt(self) -> bool:
        """Whether all of the prompt is settled (see `num_settled_tokens`): a fork may start from it."""
        return self.num_settled_tokens >= self.num_prompt_tokens

    @property
    def num_output_tokens(self) -> int:
        """Output tokens that are known."""
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def output_token_ids(self) -> list[int]:
        return self.token_ids[self.num_prompt_tokens :]

    @property
    def may_reuse_prefix(self) -> bool:
        """Whether K and V that others computed will do; not if it needs the states or the logits of its
        whole prompt. Of `n` siblings only the first needs the logits."""
        if self.params.pooling == "mean":
            return False
        return self.params.prompt_logprobs is None or self.fork_of is not None

    @property
    def is_finished(self) -> bool:
        return self.status is RequestStatus.FINISHED

    def drop_last(self, num_tokens: int) -> None:
        """Take back the newest output tokens, which came after the one that ends the request."""
        if num_tokens:
            del self.token_ids[-num_tokens:]
            del self.logprobs[self.num_output_tokens :]
