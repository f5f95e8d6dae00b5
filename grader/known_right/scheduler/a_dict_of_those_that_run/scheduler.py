"""A scheduler whose methods are named as the stub's, on a dictionary in place of the ordered list.

`_running` has the rank of each request, computed when it came in; who is last is found when someone
must go. Shares of a step are worked out before room is made, and waiting requests count in blocks that
are left.
"""

from yaie.core.batch import ScheduledRequest, StepPlan
from yaie.core.contracts import KVCacheManager, SchedulingPolicy
from yaie.core.errors import InvariantError
from yaie.core.request import FailureKind, FinishReason, Request, RequestStatus


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
        self._cache, self._policy = cache, policy
        self._max_num_seqs, self.token_budget = max_num_seqs, token_budget
        self._chunked_prefill, self._swap, self._watermark = chunked_prefill, swap, watermark
        self._running: dict[Request, tuple[int, ...]] = {}

    num_running = property(lambda self: len(self._running))
    num_waiting = property(lambda self: len(self._policy))

    @property
    def _num_rows(self) -> int:
        return len(self._running)

    def add(self, request: Request) -> None:
        """Queue a request."""
        self._policy.push(request)

    def schedule(self) -> StepPlan:
        """Plan one step."""
        plan = StepPlan()
        budget = self._continue_running(plan)
        if not plan.preempted:
            self._admit_waiting(plan, budget)
        singles = [item for item in plan.scheduled if item.num_tokens == 1]
        chunks = [item for item in plan.scheduled if item.num_tokens != 1]
        plan.scheduled = singles + chunks
        plan.swap_out, plan.swap_in, plan.copies = self._cache.take_moves()
        return plan

    def _continue_running(self, plan: StepPlan) -> int:
        """Shares for those that run: single tokens first, then the rest of the budget for chunks."""
        order = sorted(self._running, key=self._running.__getitem__)
        wants = [(request, _num_wanted(request)) for request in order]
        singles = min(self.token_budget, [count for _, count in wants].count(1))
        chunks = self.token_budget - singles
        for request, count in wants:
            left = singles if count == 1 else chunks
            share = min(count, left)
            if not share or request not in self._running:
                continue
            if not self._make_room(request, share, plan):
                continue
            self._put(plan, request, share)
            if count == 1:
                singles -= 1
            else:
                chunks -= share
        return singles + chunks

    def _put(self, plan: StepPlan, request: Request, num_tokens: int) -> None:
        computed = request.num_computed_tokens
        plan.scheduled.append(
            ScheduledRequest(
                request=request,
                start=computed,
                num_tokens=num_tokens,
                block_table=self._cache.block_table(request),
                samples=computed + num_tokens >= request.num_tokens,
            )
        )

    def _admit_waiting(self, plan: StepPlan, budget: int) -> None:
        """One after the other, in the order of the queue."""
        admitted = 1
        while admitted and budget > 0 and self._num_rows < self._max_num_seqs:
            request = self._policy.peek()
            if request is None or request.num_in_flight or self._cache.is_pending(request):
                break
            admitted = self._try_admit(request, budget)
            if admitted:
                self._put(plan, request, admitted)
            elif not self._running:
                self._fail(request, plan)
            budget -= admitted

    def _try_admit(self, request: Request, budget: int) -> int:
        """How many tokens it may compute; 0 if it must wait."""
        if request.status is RequestStatus.SWAPPED:
            claim = self._cache.swap_in
        else:
            self._cache.admit(request)
            claim = self._cache.allocate
        begin, total = request.num_computed_tokens, request.num_tokens
        end = min(total, begin + budget)
        later = self._blocks_for(total) - self._blocks_for(end)
        if self._running:
            later += self._watermark
        if (end == total or self._chunked_prefill) and claim(request, end, keep_free=later):
            self._policy.remove(request)
            request.status = RequestStatus.RUNNING
            self._running[request] = self._policy.rank(request)
            return end - begin
        if request.status is not RequestStatus.SWAPPED:
            self._cache.free(request, keep=False)
            request.num_computed_tokens = 0
        return 0

    def _blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self._cache.block_size)

    def _fail(self, request: Request, plan: StepPlan) -> None:
        request.error, request.failure = "it does not fit, even alone", FailureKind.CAPACITY
        self.finish(request, FinishReason.ERROR)
        plan.failed.append(request)

    def _make_room(self, request: Request, num_tokens: int, plan: StepPlan) -> bool:
        """Whether it may go on."""
        end = request.num_computed_tokens + num_tokens
        while request in self._running:
            if self._cache.allocate(request, end):
                return True
            if len(self._running) > 1:
                self._preempt_last(plan)
                continue
            if request.num_in_flight == 0:
                self._fail(request, plan)
            break
        return False

    def _preempt_last(self, plan: StepPlan) -> Request:
        victim = max(self._running, key=self._running.__getitem__)
        del self._running[victim]
        plan.preempted.append(victim)
        victim.num_preemptions += 1
        if self._swap and self._cache.swap_out(victim):
            victim.status = RequestStatus.SWAPPED
        else:
            self._cache.free(victim, keep=True)
            victim.status, victim.num_computed_tokens = RequestStatus.PREEMPTED, 0
        self._policy.push_front(victim)
        return victim

    def advance(self, plan: StepPlan) -> None:
        """Sent."""
        for item in plan.scheduled:
            if item.request.status is RequestStatus.FINISHED:
                continue
            item.request.num_computed_tokens += item.num_tokens
            item.request.num_in_flight += item.num_tokens
            item.request.num_output_placeholders += len(item.drafts) + (1 if item.samples else 0)

    def update(self, plan: StepPlan, token_ids: list[list[int]]) -> list[Request]:
        """Read."""
        gained = []
        at = 0
        for item in plan.scheduled:
            new: list[int] = []
            if item.samples:
                new = token_ids[at]
                at += 1
            if item.request.is_finished:
                continue
            self._take(item, new)
            if new:
                gained.append(item.request)
        return gained

    def _take(self, item: ScheduledRequest, new: list[int]) -> None:
        request, promised = item.request, len(item.drafts) + item.samples
        request.token_ids.extend(new)
        request.num_output_placeholders -= promised
        request.num_in_flight -= item.num_tokens
        if request.status is not RequestStatus.PREEMPTED:
            request.num_computed_tokens -= promised - len(new)
        ends_prompt = item.start < request.num_prompt_tokens <= item.start + item.num_tokens
        if request in self._running and (item.num_tokens > 1 or ends_prompt):
            self._cache.commit(request)

    def finish(self, request: Request, reason: FinishReason) -> None:
        """End it wherever it is."""
        if request.is_finished:
            return
        if request in self._running:
            del self._running[request]
        else:
            self._policy.remove(request)
        self._release(request, reason)
        request.finish_reason, request.status = reason, RequestStatus.FINISHED

    def _release(self, request: Request, reason: FinishReason) -> None:
        self._cache.free(request, keep=reason is not FinishReason.ERROR)

    def check(self) -> None:
        """Raise InvariantError unless what runs has something to compute, and blocks for what it has."""
        for request in self._running:
            room = len(self._cache.block_table(request)) * self._cache.block_size
            if not request.num_computed_tokens <= room:
                raise InvariantError(f"{request.request_id} has blocks for {room} tokens")
            if request.status is not RequestStatus.RUNNING:
                raise InvariantError(f"{request.request_id} is {request.status}")


def _num_wanted(request: Request) -> int:
    unread = request.num_output_placeholders
    if unread > 1 or (unread and request.num_output_tokens + unread >= request.max_tokens):
        return 0
    return request.num_tokens - request.num_computed_tokens
