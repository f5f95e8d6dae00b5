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
        # BEGIN SOLUTION 6.4
        self._cache.begin_step()
        plan = StepPlan()
        budget = self._continue_running(plan)
        if not plan.preempted:
            self._admit_waiting(plan, budget)
        plan.swap_out, plan.swap_in, plan.copies = self._cache.take_moves()
        return plan
        # END SOLUTION

    def _continue_running(self, plan: StepPlan) -> int:
        """Schedule the running requests in order of rank; returns the budget that is left."""
        # BEGIN SOLUTION 6.4
        budget, position = self._token_budget, 0
        while position < len(self._running) and budget > 0:
            request = self._running[position]
            num_tokens = min(request.num_tokens - request.num_computed_tokens, budget)
            if self._make_room(request, num_tokens, plan):
                self._put(plan, request, num_tokens)
                budget -= num_tokens
                position += 1
        return budget
        # END SOLUTION

    def _put(self, plan: StepPlan, request: Request, num_tokens: int) -> None:
        """Enter a request's share into the plan."""
        # BEGIN SOLUTION 6.4
        start = request.num_computed_tokens
        plan.scheduled.append(
            ScheduledRequest(
                request=request,
                start=start,
                num_tokens=num_tokens,
                block_table=self._cache.block_table(request),
                slots=self._cache.slot_mapping(request, start, num_tokens),
                samples=start + num_tokens == request.num_tokens,
            )
        )
        # END SOLUTION

    # ANCHOR_END: schedule

    # ANCHOR: admit
    def _admit_waiting(self, plan: StepPlan, budget: int) -> None:
        """Let the queue in, one by one, until budget, seats or blocks run out."""
        # BEGIN SOLUTION 6.5
        while budget > 0 and self._num_seats_taken < self._max_num_seqs:
            request = self._policy.peek()
            # If somebody is computing the very prefix that this request needs, the next step finds it
            # cached. Nobody is when nothing else is scheduled.
            if request is None or (plan.scheduled and self._cache.is_pending(request)):
                return
            num_tokens = self._try_admit(request, budget)
            if num_tokens == 0:
                if not self._running:
                    self._fail(request, plan)
                return
            self._put(plan, request, num_tokens)
            budget -= num_tokens
        # END SOLUTION

    def _try_admit(self, request: Request, budget: int) -> int:
        """Give a waiting request its blocks and a seat; returns how many tokens it may compute, or 0.

        Room is asked for the whole sequence though only its first chunk takes it now: admitting what
        cannot be finished would only preempt it later. Who is not let in holds nothing.
        """
        # BEGIN SOLUTION 6.5
        swapped = request.status is RequestStatus.SWAPPED
        computed = request.num_computed_tokens if swapped else self._cache.admit(request)
        remaining = request.num_tokens - computed
        num_tokens = min(remaining, budget)
        size = self._cache.block_size
        later_blocks = -(-request.num_tokens // size) - -(-(computed + num_tokens) // size)
        keep_free = later_blocks + (self._watermark if self._running else 0)
        claim = self._cache.swap_in if swapped else self._cache.allocate
        fits_budget = self._chunked_prefill or num_tokens == remaining
        if not fits_budget or not claim(request, computed + num_tokens, keep_free=keep_free):
            if not swapped:
                self._cache.free(request)
                request.num_computed_tokens = 0
            return 0
        self._policy.remove(request)
        request.status = RequestStatus.RUNNING
        insort(self._running, request, key=self._policy.rank)
        return num_tokens
        # END SOLUTION

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
        # BEGIN SOLUTION 6.6
        while not self._cache.allocate(request, request.num_computed_tokens + num_tokens):
            if self._running == [request]:
                self._fail(request, plan)
                return False
            if self._preempt_last(plan) is request:
                return False
        return True
        # END SOLUTION

    def _preempt_last(self, plan: StepPlan) -> Request:
        """Take the last request's seat and blocks; it goes back to the front of the queue."""
        # BEGIN SOLUTION 6.6
        victim = self._running.pop()
        if self._swap and self._cache.swap_out(victim):
            victim.status = RequestStatus.SWAPPED
        else:
            self._cache.free(victim)
            victim.num_computed_tokens = 0
            victim.status = RequestStatus.PREEMPTED
        victim.num_preemptions += 1
        self._policy.push_front(victim)
        plan.preempted.append(victim)
        return victim
        # END SOLUTION

    # ANCHOR_END: preempt

    # ANCHOR: update
    def update(self, plan: StepPlan, token_ids: Sequence[int]) -> list[Request]:
        """Take over a step's result; returns the requests that gained a token.

        What others may look for, prompts above all, is filed in the cache at once.
        """
        # BEGIN SOLUTION 6.7
        tokens = iter(token_ids)
        advanced = []
        for item in plan.scheduled:
            request = item.request
            token = next(tokens) if item.samples else None
            if request.is_finished:
                continue
            request.num_computed_tokens = item.start + item.num_tokens
            # What others may look for is filed at once; a decode's blocks when the request ends.
            if item.num_tokens > 1 or request.num_computed_tokens == request.num_prompt_tokens:
                self._cache.commit(request)
            if token is not None:
                request.token_ids.append(token)
                advanced.append(request)
        return advanced
        # END SOLUTION

    def finish(self, request: Request, reason: FinishReason) -> None:
        """End a request, wherever it stands, and give back what it holds; harmless if it has ended."""
        # BEGIN SOLUTION 6.7
        if request.is_finished:
            return
        if request.status is RequestStatus.RUNNING:
            rank = self._policy.rank
            del self._running[bisect_left(self._running, rank(request), key=rank)]
        else:
            self._policy.remove(request)
        self._release(request, reason)
        request.status = RequestStatus.FINISHED
        request.finish_reason = reason
        # END SOLUTION

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
