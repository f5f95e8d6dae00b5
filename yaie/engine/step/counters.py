"""What an engine has done since it started, in numbers that only grow. Kept by `LLMEngine`."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields

from yaie.core.batch import StepPlan
from yaie.core.output import RequestOutput
from yaie.core.request import FailureKind, FinishReason

TellPlan = Callable[[StepPlan], None]


@dataclass(slots=True)
class Counters:
    """prompt_tokens, cached_tokens: of requests that got their first token; the second are those of
    the first that came from the prefix cache.
    computed_tokens: what the forward passes computed, recomputation after a preemption included.
    prefilled_tokens: those of them that are tokens of prompts.
    drafted: how often a request had drafts in a step. draft_tokens: how many, and
    accepted_draft_tokens: how many of them were right.
    failed_requests: ended with FinishReason.ERROR. corrupted_requests: those among them whose logits
    or hidden states were not finite.
    """

    steps: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generation_tokens: int = 0
    failed_requests: int = 0
    corrupted_requests: int = 0
    preemptions: int = 0
    computed_tokens: int = 0
    prefilled_tokens: int = 0
    drafted: int = 0
    draft_tokens: int = 0
    accepted_draft_tokens: int = 0
    _started: dict[str, None] = field(default_factory=dict)
    _tell_plan: TellPlan | None = None

    def extend(self, plan: StepPlan) -> None:
        """See PlanStage: changes nothing. Notes when a request had its first turn."""
        now = time.monotonic()
        self.preemptions += len(plan.preempted)
        for item in plan.scheduled:
            request = item.request
            self.computed_tokens += item.num_tokens
            if item.start < request.num_prompt_tokens:
                self.prefilled_tokens += min(
                    item.num_tokens, request.num_prompt_tokens - item.start
                )
            if request.scheduled_time is None:
                request.scheduled_time = now
                self._started[request.request_id] = None
        if self._tell_plan is not None:
            self._tell_plan(plan)

    def tell_plan(self, tell: TellPlan | None) -> None:
        """Call this with each plan that is to be counted; None: no more."""
        self._tell_plan = tell

    def verified(self, num_requests: int, num_drafts: int, num_accepted: int) -> None:
        """A step has verified drafts."""
        self.drafted += num_requests
        self.draft_tokens += num_drafts
        self.accepted_draft_tokens += num_accepted

    def stepped(self, outputs: Sequence[RequestOutput]) -> None:
        """A step has yielded these."""
        self.steps += 1
        for output in outputs:
            num_tokens = len(output.token_ids)
            self.generation_tokens += num_tokens
            if num_tokens and output.num_output_tokens == num_tokens:
                self.prompt_tokens += output.num_prompt_tokens
                self.cached_tokens += output.num_cached_tokens
            if output.finish_reason is FinishReason.ERROR:
                self.failed_requests += 1
                self.corrupted_requests += output.failure is FailureKind.CORRUPTED
            if output.finish_reason is not None:
                self.over(output.request_id)

    def over(self, request_id: str) -> None:
        """A request has ended: nobody need be told of its first turn. Some callers never ask."""
        self._started.pop(request_id, None)

    def take_started(self) -> list[str]:
        """Ids of the requests that had their first turn since the last call, and are not over."""
        started, self._started = list(self._started), {}
        return started

    def as_dict(self) -> dict[str, int]:
        """The numbers by name."""
        return {name: getattr(self, name) for name in _NAMES}


_NAMES = tuple(item.name for item in fields(Counters) if not item.name.startswith("_"))
