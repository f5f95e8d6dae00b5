"""One sequence on its way through the engine, and what comes out of it."""

from dataclasses import dataclass, field
from typing import Any

from yaie.core.compat import StrEnum
from yaie.core.params import SamplingParams


class RequestStatus(StrEnum):
    """Where a request stands. PREEMPTED lost its blocks; SWAPPED has them in the host pool."""

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


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """The log-probability of one token, and of the most likely tokens in its place.

    They are the model's own: neither `logit_bias` nor penalties nor a constraint nor temperature nor
    filters have a part in them.
    top: (token id, log-probability), the most likely first; as many as were asked for.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


class _Referable:
    """Slots leave out what weak references need."""

    __slots__ = ("__weakref__",)


@dataclass(slots=True, eq=False)
class Request(_Referable):
    """One sequence and its state. Compared by identity; `request_id` is unique in an engine.

    token_ids: prompt and output in one list; output starts at `num_prompt_tokens`.
    num_computed_tokens: how many leading tokens have their K and V in the cache. A step computes the
        tokens from here on, so prefill, chunked prefill, decode and recomputation after a preemption
        are one thing with different token counts.
    num_cached_tokens: prompt tokens taken from the prefix cache when it was first admitted.
    seed: of this request's draws (64 bits); never None, the engine picks one if the client did not.
    priority: smaller goes first; ties go by `arrival` (a running number given by the engine).
    fork_of: the sibling whose prompt blocks this one shares (`n` > 1), or None.
    stop_reason: the stop string or token id that ended it, if one did.
    arrival_time, scheduled_time, first_token_time: when it came, had its first turn and got its first
        token, on the clock of `time.monotonic`; the last two are None until then.
    logprobs: one for each output token, if `params.logprobs` asks for it. Only ever grows, before the
        output of the step is told, so whoever takes outputs may read it on another thread.
    prompt_logprobs: one for each prompt token, if `params.prompt_logprobs` asks for it; None for the
        first, before which nothing stands. Complete with the first output. Of `n` siblings the first
        has it.
    matcher: what follows the output through the grammar of `params.constraint`; the engine's affair.
    """

    request_id: str
    token_ids: list[int]
    params: SamplingParams
    seed: int = 0
    priority: int = 0
    arrival: int = 0
    fork_of: "Request | None" = None
    num_prompt_tokens: int = field(init=False)
    num_computed_tokens: int = 0
    num_cached_tokens: int = 0
    num_preemptions: int = 0
    max_tokens: int = 0
    status: RequestStatus = RequestStatus.WAITING
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    error: str | None = None
    arrival_time: float = 0.0
    scheduled_time: float | None = None
    first_token_time: float | None = None
    logprobs: list[TokenLogprob] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprob | None] = field(default_factory=list)
    matcher: Any = None

    def __post_init__(self) -> None:
        self.num_prompt_tokens = len(self.token_ids)

    @property
    def num_tokens(self) -> int:
        """Prompt and output tokens known so far."""
        return len(self.token_ids)

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def output_token_ids(self) -> list[int]:
        return self.token_ids[self.num_prompt_tokens :]

    @property
    def may_reuse_prefix(self) -> bool:
        """Whether K and V that others computed will do; not if it needs the logits of its prompt, which
        of `n` siblings the first does."""
        return self.params.prompt_logprobs is None or self.fork_of is not None

    @property
    def is_finished(self) -> bool:
        return self.status is RequestStatus.FINISHED


@dataclass(slots=True)
class RequestOutput:
    """What one step added to one request.

    text: the new text, safe to show: whole characters, nothing that may still become a stop string.
    token_ids: the new tokens (at most one a step today; speculative decoding yields more).
    finish_reason: set in a request's last output, and only there.
    """

    request: Request
    text: str
    token_ids: list[int]
    finish_reason: FinishReason | None = None
