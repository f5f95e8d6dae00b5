"""A scheduler that divides the work in another way.

Different from the reference: those that run are a set, sorted when a step is planned; a step is a plan
object of its own with the budget in it; a share enters the plan the moment it has room; `update` works
from a table of who gets which token and files after every step, decodes as well. `StaticScheduler`
builds on the stub's methods and stays with the reference.
"""

from collections.abc import Sequence

from yaie.core.batch import ScheduledRequest, StepPlan
from yaie.core.contracts import KVCacheManager, SchedulingPolicy
from yaie.core.errors import InvariantError
from yaie.core.request import FinishReason, Request, RequestStatus


class Scheduler:
    """See `yaie.core.contracts.Scheduler`."""

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
        self._queue = policy
        self._seats = max_num_seqs
        self._token_budget = token_budget
        self._chunks = chunked_prefill
        self._swap = swap
        self._watermark = watermark
        self._seated: set[Request] = set()

    @property
    def num_running(self) -> int:
        return len(self._seated)

    @property
    def num_waiting(self) -> int:
        return len(self._queue)

    def add(self, request: Request) -> None:
        """Queue a request."""
        self._queue.push(request)

    def schedule(self) -> StepPlan:
        """Plan one step."""
        self._cache.begin_step()
        plan = StepPlan()
        for request in sorted(self._seated, key=self._queue.rank):
            if request in self._seated and self._left(plan) > 0:  # it may have been preempted since
                count = min(request.num_tokens - request.num_computed_tokens, self._left(plan))
                self._go_on(plan, request, count)
        while not plan.preempted and self._left(plan) > 0 and len(self._seated) < self._seats:
            if not self._let_next_in(plan):
                break
        plan.swap_out, plan.swap_in, plan.copies = self._cache.take_moves()
        return plan

    def _left(self, plan: StepPlan) -> int:
        return self._token_budget - plan.num_tokens

    def _go_on(self, plan: StepPlan, request: Request, count: int) -> None:
        """Compute `count` more tokens, at the expense of the last in rank if need be."""
        while not self._cache.allocate(request, request.num_computed_tokens + count):
            last = max(self._seated, key=self._queue.rank)
            if len(self._seated) == 1:
                self._give_up(plan, request)
            else:
                self._unseat(plan, last)
            if request not in self._seated:
                return
        self._enter(plan, request, count)

    def _enter(self, plan: StepPlan, request: Request, count: int) -> None:
        begin = request.num_computed_tokens
        table = self._cache.block_table(request)
        slots = self._cache.slot_mapping(request, begin, count)
        ends = begin + count == request.num_tokens
        plan.scheduled.append(ScheduledRequest(request, begin, count, table, slots, ends))

    def _unseat(self, plan: StepPlan, victim: Request) -> None:
        self._seated.discard(victim)
        victim.num_preemptions += 1
        victim.status = RequestStatus.SWAPPED
        if not self._swap or not self._cache.swap_out(victim):
            victim.status = RequestStatus.PREEMPTED
            self._cache.free(victim)
            victim.num_computed_tokens = 0
        self._queue.push_front(victim)
        plan.preempted.append(victim)

    def _let_next_in(self, plan: StepPlan) -> bool:
        """Whether the next in the queue got a seat."""
        request = self._queue.peek()
        if request is None or (plan.scheduled and self._cache.is_pending(request)):
            return False
        from_host = request.status is RequestStatus.SWAPPED
        done = request.num_computed_tokens if from_host else self._cache.admit(request)
        count = min(request.num_tokens - done, self._left(plan))
        whole = done + count == request.num_tokens
        get = self._cache.swap_in if from_host else self._cache.allocate
        reserve = self._blocks(request.num_tokens) - self._blocks(done + count)
        reserve += self._watermark if self._seated else 0
        if (whole or self._chunks) and get(request, done + count, keep_free=reserve):
            self._queue.remove(request)
            self._seated.add(request)
            request.status = RequestStatus.RUNNING
            self._enter(plan, request, count)
            return True
        if not from_host:
            self._cache.free(request, keep=False)
            request.num_computed_tokens = 0
        if not self._seated:
            self._give_up(plan, request)
        return False

    def _blocks(self, num_tokens: int) -> int:
        return (num_tokens + self._cache.block_size - 1) // self._cache.block_size

    def _give_up(self, plan: StepPlan, request: Request) -> None:
        request.error = (
            f"{request.num_tokens} tokens do not fit, even alone; send a shorter request"
        )
        self.finish(request, FinishReason.ERROR)
        plan.failed.append(request)

    def update(self, plan: StepPlan, token_ids: Sequence[int]) -> list[Request]:
        """Take over a step's result."""
        sampled = [item.request for item in plan.scheduled if item.samples]
        drawn = dict(zip(sampled, token_ids, strict=True))
        for item in plan.scheduled:
            if item.request in self._seated:
                item.request.num_computed_tokens += item.num_tokens
                self._cache.commit(item.request)
        alive = [request for request in sampled if request in self._seated]
        for request in alive:
            request.token_ids.append(drawn[request])
        return alive

    def finish(self, request: Request, reason: FinishReason) -> None:
        """End a request."""
        if request.finish_reason is None:
            if request in self._seated:
                self._seated.remove(request)
            else:
                self._queue.remove(request)
            self._cache.free(request, keep=reason is not FinishReason.ERROR)
            request.status, request.finish_reason = RequestStatus.FINISHED, reason

    def check(self) -> None:
        """Raise InvariantError unless those that run have something to compute."""
        for request in self._seated:
            if request.status is not RequestStatus.RUNNING:
                raise InvariantError(f"{request.request_id} has a seat but is {request.status}")
            if request.num_computed_tokens >= request.num_tokens:
                raise InvariantError(f"{request.request_id} has nothing left to compute")
