"""Static batching: the naive sibling, and what continuous batching is measured against."""

from typing import Any

from yaie.core.batch import StepPlan
from yaie.core.contracts import KVCacheManager, SchedulingPolicy
from yaie.core.request import FinishReason, Request, RequestStatus

from .scheduler import Scheduler


class StaticScheduler(Scheduler):
    """A batch is filled, runs until its last request ends, and only then comes the next.

    A sequence that ends early keeps its row, computed and thrown away, as in a padded tensor: that is
    the cost which continuous batching saves.
    """

    def __init__(self, cache: KVCacheManager, policy: SchedulingPolicy, **settings: Any) -> None:
        super().__init__(cache, policy, **settings)
        self._ended_rows: list[Request] = []
        self._is_open = True

    def schedule(self) -> StepPlan:
        """Those that go on, new ones only while the batch is being filled, and the rows that ended."""
        self._cache.begin_step()
        plan = StepPlan()
        self._is_open |= not self._running
        budget = self._continue_running(plan)
        if self._is_open and not plan.preempted:
            self._admit_waiting(plan, budget)
            # Only a spent token budget leaves the batch open for the next step.
            self._is_open = plan.num_tokens >= self._token_budget
        for request in self._ended_rows:
            self._put_again(plan, request)
        plan.swap_out, plan.swap_in, plan.copies = self._cache.take_moves()
        return plan

    def _put_again(self, plan: StepPlan, request: Request) -> None:
        """Compute an ended row's last token once more; `update` passes over the result."""
        request.num_computed_tokens -= 1
        self._put(plan, request, 1)
        plan.scheduled[-1].samples = True
        request.num_computed_tokens += 1

    def _release(self, request: Request, reason: FinishReason) -> None:
        """Keep the row until the batch has no other."""
        if request.status is not RequestStatus.RUNNING:
            super()._release(request, reason)
            return
        self._ended_rows.append(request)
        if not self._running:
            for row in self._ended_rows:
                super()._release(row, row.finish_reason or reason)
            self._ended_rows = []
