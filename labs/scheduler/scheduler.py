# Lab 6, your part: tasks 6.4, 6.5, 6.6, 6.7. The rest is given.
"""Decides what each step computes: continuous batching (Yu et al. 2022, Orca) with chunked prefill
(Agrawal et al. 2023, Sarathi) and preemption.

A request needs the K and V of all its tokens but has those of the first `num_computed_tokens`. Every
step moves that number on, by a whole prompt, a chunk of one, or one token; which of these it is, the
scheduler does not ask. Called by the step loop of the engine.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence

from yaie.core.batch import ScheduledRequest, StepPlan
from yaie.core.contracts import KVCacheManager, SchedulingPolicy
from yaie.core.errors import InvariantError
from yaie.core.request import FinishReason, Request, RequestStatus


# ANCHOR: given
class Scheduler:
    """See `yaie.core.contracts.Scheduler`.

    max_num_seqs: requests that run at once. token_budget: tokens a step computes at most.
    swap: preempt by moving blocks to the host while it has room, otherwise by recomputing.
    watermark: blocks that admitting a request leaves free while others run, for them to grow into.
    """

    def __init__(
        self,
        cache: KVCacheManager,
        policy: SchedulingPolicy,
        *,
        max_num_seqs: int,
        token_budget: int,
        chunked_prefill: bool = True,
        swap: bool = False,
        watermark: int = 0,
    ) -> None:
        self._cache = cache
        self._policy = policy
        self._max_num_seqs = max_num_seqs
        self._token_budget = token_budget
        self._chunked_prefill = chunked_prefill
        self._swap = swap
        self._watermark = watermark
        self._running: list[Request] = []  # in order of rank

    # ANCHOR_END: given

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        return len(self._policy)

    @property
    def _num_seats_taken(self) -> int:
        return len(self._running)

    def add(self, request: Request) -> None:
        """Queue a request."""
        self._policy.push(request)

    # ANCHOR: schedule
    def schedule(self) -> StepPlan:
        """Plan one step: those that run go on, then the queue moves up into what budget is left.

        A step that preempts lets nobody in. The cache is told that a step begins, and the moves that
        it has promised go into the plan.
        """
        # TODO 6.4: your code here (the reference: 7 lines).
        raise NotImplementedError(
            "scheduler task 6.4: not implemented yet; see chapter The scheduler"
        )

    def _continue_running(self, plan: StepPlan) -> int:
        """Schedule the running requests in order of rank; returns the budget that is left."""
        # TODO 6.4: your code here (the reference: 9 lines).
        raise NotImplementedError(
            "scheduler task 6.4: not implemented yet; see chapter The scheduler"
        )

    def _put(self, plan: StepPlan, request: Request, num_tokens: int) -> None:
        """Enter a request's share into the plan."""
        # TODO 6.4: your code here (the reference: 11 lines).
        raise NotImplementedError(
            "scheduler task 6.4: not implemented yet; see chapter The scheduler"
        )

    # ANCHOR_END: schedule

    # ANCHOR: admit
    def _admit_waiting(self, plan: StepPlan, budget: int) -> None:
        """Let the queue in, one by one, until budget, seats or blocks run out."""
        # TODO 6.5: your code here (the reference: 11 lines).
        raise NotImplementedError(
            "scheduler task 6.5: not implemented yet; see chapter The scheduler"
        )

    def _try_admit(self, request: Request, budget: int) -> int:
        """Give a waiting request its blocks and a seat; returns how many tokens it may compute, or 0.

        Room is asked for the whole sequence though only its first chunk takes it now: admitting what
        cannot be finished would only preempt it later. Who is not let in holds nothing.
        """
        # TODO 6.5: your code here (the reference: 18 lines).
        raise NotImplementedError(
            "scheduler task 6.5: not implemented yet; see chapter The scheduler"
        )

    # ANCHOR: fail
    def _fail(self, request: Request, plan: StepPlan) -> None:
        """End a request that does not fit even alone, so that the queue behind it moves on."""
        request.error = (
            f"the request needs room for {request.num_tokens} tokens at once, which the engine does not "
            "have even when it is empty; send a shorter one, or raise num_blocks or token_budget"
        )
        self.finish(request, FinishReason.ERROR)
        plan.failed.append(request)

    # ANCHOR_END: fail
    # ANCHOR_END: admit

    # ANCHOR: preempt
    def _make_room(self, request: Request, num_tokens: int, plan: StepPlan) -> bool:
        """Have blocks for the request's next tokens, preempting from the end of the line.

        False if the request itself had to go.
        """
        # TODO 6.6: your code here (the reference: 7 lines).
        raise NotImplementedError(
            "scheduler task 6.6: not implemented yet; see chapter The scheduler"
        )

    def _preempt_last(self, plan: StepPlan) -> Request:
        """Take the last request's seat and blocks; it goes back to the front of the queue."""
        # TODO 6.6: your code here (the reference: 11 lines).
        raise NotImplementedError(
            "scheduler task 6.6: not implemented yet; see chapter The scheduler"
        )

    # ANCHOR_END: preempt

    # ANCHOR: update
    def update(self, plan: StepPlan, token_ids: Sequence[int]) -> list[Request]:
        """Take over a step's result; returns the requests that gained a token.

        What others may look for, prompts above all, is filed in the cache at once.
        """
        # TODO 6.7: your code here (the reference: 14 lines).
        raise NotImplementedError(
            "scheduler task 6.7: not implemented yet; see chapter The scheduler"
        )

    def finish(self, request: Request, reason: FinishReason) -> None:
        """End a request, wherever it stands, and give back what it holds; harmless if it has ended."""
        # TODO 6.7: your code here (the reference: 10 lines).
        raise NotImplementedError(
            "scheduler task 6.7: not implemented yet; see chapter The scheduler"
        )

    def _release(self, request: Request, reason: FinishReason) -> None:
        """Give back the blocks of a request that ends; the content of a failed one is not kept."""
        self._cache.free(request, keep=reason is not FinishReason.ERROR)

    # ANCHOR_END: update

    # ANCHOR: check
    def check(self) -> None:
        """Raise InvariantError unless queues, statuses and blocks agree."""
        ranks = [self._policy.rank(request) for request in self._running]
        if ranks != sorted(ranks):
            raise InvariantError(f"running requests are out of order: {ranks}")
        for request in self._running:
            if request.status is not RequestStatus.RUNNING:
                raise InvariantError(
                    f"{request.request_id} runs but its status is {request.status}"
                )
            room = len(self._cache.block_table(request)) * self._cache.block_size
            if room < request.num_computed_tokens:
                raise InvariantError(
                    f"{request.request_id} has computed {request.num_computed_tokens} tokens "
                    f"but has blocks for {room}"
                )
            if request.num_computed_tokens >= request.num_tokens:
                raise InvariantError(f"{request.request_id} runs but has nothing left to compute")

    # ANCHOR_END: check
