"""A scheduler that divides the work in another way.

Different from the reference: those that run are a set, sorted when a step is planned; room is made for
all of them first, and only those that are left then enter the plan, decodes before chunks; `update`
has a table of tokens by request and files after every step, decodes as well. `StaticScheduler` builds on
the stub's methods and stays with the reference.
"""

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
        self.token_budget = token_budget
        self._chunks = chunked_prefill
        self._swap = swap
        self._watermark = watermark
        self._seated: set[Request] = set()
        self._waiting_for_room: set[Request] = set()

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
        plan = StepPlan()
        counts = self._share_out()
        for request in sorted(counts, key=self._queue.rank):
            if request in self._seated:  # it may have been preempted since
                self._make_room(plan, request, counts[request])
        staying = [request for request in counts if request in self._seated and counts[request]]
        for request in staying:
            self._enter(plan, request, counts[request])
        while not plan.preempted and self._left(plan) > 0 and len(self._seated) < self._seats:
            if not self._let_next_in(plan):
                break
        plan.swap_out, plan.swap_in, plan.copies = self._cache.take_moves()
        return plan

    def _share_out(self) -> dict[Request, int]:
        """How many tokens each running request may compute; decodes first, each kind by rank."""
        rest, counts = self.token_budget, {}
        running = sorted(self._seated, key=self._queue.rank)
        for request in sorted(running, key=lambda request: self._wants(request) > 1):
            counts[request] = min(self._wants(request), rest)
            rest -= counts[request]
        return counts

    def _wants(self, request: Request) -> int:
        """Nothing while a step in flight draws its last token, or more than one."""
        drawn = request.num_output_tokens + request.num_output_placeholders
        unread = request.num_output_placeholders
        if unread and (unread > 1 or drawn >= request.max_tokens):
            return 0
        return request.num_tokens - request.num_computed_tokens

    def _left(self, plan: StepPlan) -> int:
        return self.token_budget - plan.num_tokens

    def _make_room(self, plan: StepPlan, request: Request, count: int) -> None:
        """Blocks for `count` more tokens, at the expense of the last in rank if need be."""
        while count and not self._cache.allocate(request, request.num_computed_tokens + count):
            last = max(self._seated, key=self._queue.rank)
            if len(self._seated) > 1:
                self._unseat(plan, last)
            elif request.num_in_flight:
                self._waiting_for_room.add(request)
                return
            else:
                self._give_up(plan, request)
            if request not in self._seated:
                return

    def _enter(self, plan: StepPlan, request: Request, count: int) -> None:
        begin = request.num_computed_tokens
        if request in self._waiting_for_room:
            self._waiting_for_room.discard(request)
            return
        table = self._cache.block_table(request)
        ends = begin + count == request.num_tokens
        place = len(plan.scheduled)
        if count == 1:
            place = sum(item.num_tokens == 1 for item in plan.scheduled)
        plan.scheduled.insert(place, ScheduledRequest(request, begin, count, table, ends))

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
        if request is None or request.num_in_flight > 0:
            return False
        if self._cache.is_pending(request):
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

    def advance(self, plan: StepPlan) -> None:
        """The plan is on its way."""
        for item in plan.scheduled:
            if item.request in self._seated:
                item.request.num_computed_tokens = item.start + item.num_tokens
                item.request.num_in_flight += item.num_tokens
                item.request.num_output_placeholders += int(item.samples) + len(item.drafts)

    def update(self, plan: StepPlan, token_ids: list[list[int]]) -> list[Request]:
        """Take over a step's result."""
        sampled = [item.request for item in plan.scheduled if item.samples]
        drawn = dict(zip(sampled, token_ids, strict=True))
        alive = [item for item in plan.scheduled if item.request.finish_reason is None]
        for item in alive:
            request, new = item.request, drawn.get(item.request, [])
            promised = int(item.samples) + len(item.drafts)
            request.num_output_placeholders -= promised
            request.num_in_flight -= item.num_tokens
            request.token_ids.extend(new)
            if request.status is not RequestStatus.PREEMPTED:
                request.num_computed_tokens += len(new) - promised
            if request in self._seated:
                self._cache.commit(request)
        return [item.request for item in alive if drawn.get(item.request)]

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
