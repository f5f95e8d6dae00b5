"""What an engine has done since it started, in numbers that only grow. Kept by `LLMEngine`."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields

from yaie.core.batch import StepPlan
from yaie.core.request import FinishReason, Request, RequestOutput


@dataclass(slots=True)
class Counters:
    """prompt_tokens, cached_tokens: of requests that got their first token; the second are those of
    the first that came from the prefix cache.
    computed_tokens: what the forward passes computed, recomputation after a preemption included.
    failed_requests: ended with FinishReason.ERROR. corrupted_requests: those among them whose logits
    were not finite.
    """

    steps: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generation_tokens: int = 0
    failed_requests: int = 0
    corrupted_requests: int = 0
    preemptions: int = 0
    computed_tokens: int = 0
    _plan: StepPlan | None = None

    def planned(self, plan: StepPlan) -> None:
        """A step is about to be computed. Notes when a request had its first turn."""
        now = time.monotonic()
        self.preemptions += len(plan.preempted)
        self.computed_tokens += plan.num_tokens
        for item in plan.scheduled:
            if item.request.scheduled_time is None:
                item.request.scheduled_time = now
        self._plan = plan

    def stepped(self, outputs: Sequence[RequestOutput], *, intact: bool) -> None:
        """A step has yielded these. intact: no part failed in it, so that a request which failed while
        it was being sampled had no finite logits."""
        self.steps += 1
        for output in outputs:
            request = output.request
            num_tokens = len(output.token_ids)
            self.generation_tokens += num_tokens
            if num_tokens and request.num_output_tokens == num_tokens:
                self.prompt_tokens += request.num_prompt_tokens
                self.cached_tokens += request.num_cached_tokens
            if output.finish_reason is FinishReason.ERROR:
                self.failed_requests += 1
                self.corrupted_requests += intact and self._was_sampled(request)
        self._plan = None

    def _was_sampled(self, request: Request) -> bool:
        items = self._plan.scheduled if self._plan is not None else ()
        return any(item.request is request and item.samples for item in items)

    def as_dict(self) -> dict[str, int]:
        """The numbers by name."""
        return {name: getattr(self, name) for name in _NAMES}


_NAMES = tuple(item.name for item in fields(Counters) if not item.name.startswith("_"))
