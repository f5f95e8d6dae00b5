"""Static batching: the naive sibling, and what continuous batching is measured against."""

from typing import Any

from yaie.core.batch import StepPlan
from yaie.core.contracts import KVCacheManager, SchedulingPolicy
from yaie.core.request import FinishReason, Request, RequestStatus

from .scheduler import Scheduler


class StaticScheduler(Scheduler):
    """A batch is filled, runs until its last request ends, and only then comes the next.

    A sequence that ends early keeps its row, computed and thrown away, as in a padded tensor: that is
    the cost which continuous batching saves. Only a live request that is short of blocks gets a row's.
    """

    def __init__(self, cache: KVCacheManager, policy: SchedulingPolicy, **settings: Any) -> None:
        super().__init__(cache, policy, **settings)
        self._ended_rows: list[Request] = []
        self._is_open = True

    @property
    def _num_rows(self) -> int:
        return len(self._running) + len(self._ended_rows)

    # ANCHOR: static_schedule
    def schedule(self) -> StepPlan:
        """The batch that is underway, and the rows in it that have ended."""
        self._is_open |= not self._running
        plan, rows = super().schedule(), StepPlan()
        for request in self._ended_rows:
            self._put(rows, request, 1)
        plan.scheduled[:0] = rows.scheduled  # single tokens come before chunks
        return plan

    def _admit_waiting(self, plan: StepPlan, budget: int) -> None:
        """New ones only while the batch is being filled."""
        if self._is_open:
            super()._admit_waiting(plan, budget)
            # Only a spent token budget leaves the batch open for the next step.
            self._is_open = plan.num_tokens >= self.token_budget

    # ANCHOR_END: static_schedule

    def _make_room(self, request: Request, num_tokens: int, plan: StepPlan) -> bool:
        """Rows that ended give way before any request that is alive."""
        wanted = request.num_computed_tokens + num_tokens
        while self._ended_rows and not self._cache.allocate(request, wanted):
            self._drop_row(self._ended_rows.pop())
        return super()._make_room(request, num_tokens, plan)

    def _release(self, request: Request, reason: FinishReason) -> None:
        """Keep the row of an output that is complete until the batch has no other.

        It goes on computing its last token, which needs a slot like any other. A request that was
        preempted while that token was unread has no row any more.
        """
        is_complete = reason in (FinishReason.STOP, FinishReason.LENGTH)
        has_row = is_complete and self._running and request.status is RequestStatus.RUNNING
        if has_row and self._cache.allocate(request, request.num_tokens):
            self._ended_rows.append(request)
        else:
            super()._release(request, reason)
        if not self._running:
            while self._ended_rows:
                self._drop_row(self._ended_rows.pop())

    def _drop_row(self, row: Request) -> None:
        super()._release(row, FinishReason.LENGTH)
