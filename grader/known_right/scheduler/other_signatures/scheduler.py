"""A scheduler with the names of the stub's methods, but other parameters and other results.

`_put` makes an entry and returns it, `_make_room` says who had to go, `_try_admit` enters the plan
itself. The budget of a step is a counter of the object, set when a step begins. `StaticScheduler` stays
with the reference.
"""

from bisect import insort
from itertools import takewhile

from yaie.core.batch import ScheduledRequest, StepPlan
from yaie.core.contracts import KVCacheManager, SchedulingPolicy
from yaie.core.request import FailureKind, FinishReason, Request, RequestStatus

ALIVE = frozenset(RequestStatus) - {RequestStatus.FINISHED}


class Scheduler:
    """See `yaie.core.contracts.Scheduler`."""

    def __init__(
        self,
        cache: KVCacheManager,
        policy: SchedulingPolicy,
        max_num_seqs: int,
        token_budget: int,
        chunked_prefill: bool = True,
        swap: bool = False,
        watermark: int = 0,
    ) -> None:
        self.cache, self.policy = cache, policy
        self.rows, self.token_budget = max_num_seqs, token_budget
        self.may_cut, self.may_swap, self.margin = chunked_prefill, swap, watermark
        self.line: list[Request] = []
        self.left = 0

    @property
    def num_running(self) -> int:
        return len(self.line)

    @property
    def num_waiting(self) -> int:
        return len(self.policy)

    def add(self, request: Request) -> None:
        """Queue a request."""
        self.policy.push(request)

    def schedule(self) -> StepPlan:
        """Plan one step."""
        entries = {True: [], False: []}  # type: dict[bool, list[ScheduledRequest]]
        gone: list[Request] = []
        failed: list[Request] = []
        self.left = self.token_budget
        for request, count in self._continue_running():
            if request in gone:
                self.left += count
                continue
            out, has_room = self._make_room(request, request.num_computed_tokens + count)
            gone += out
            if has_room:
                entries[count == 1].append(self._put(request, count))
            else:
                self.left += count
                if not out and self._is_hopeless(request):
                    failed.append(self._fail(request))
        if not gone:
            for entry in self._admit_waiting(failed):
                entries[entry.num_tokens == 1].append(entry)
        out_pairs, in_pairs, copies = self.cache.take_moves()
        return StepPlan(
            scheduled=entries[True] + entries[False],
            swap_out=out_pairs,
            swap_in=in_pairs,
            copies=copies,
            preempted=gone,
            failed=failed,
        )

    def _continue_running(self) -> list[tuple[Request, int]]:
        """By rank, with what each may compute. It is taken off the budget here."""
        wanted = {request: self._num_wanted(request) for request in self.line}
        for kind in (True, False):
            for request in self.line:
                if (wanted[request] == 1) is kind:
                    wanted[request] = min(wanted[request], self.left)
                    self.left -= wanted[request]
        return [(request, count) for request, count in wanted.items() if count]

    def _num_wanted(self, request: Request) -> int:
        match request.num_output_placeholders:
            case 0:
                pass
            case 1 if request.num_tokens - request.num_prompt_tokens < request.max_tokens:
                pass
            case _:
                return 0
        return request.num_tokens - request.num_computed_tokens

    def _put(self, request: Request, count: int) -> ScheduledRequest:
        is_last = request.num_computed_tokens + count == request.num_tokens
        table = self.cache.block_table(request)
        return ScheduledRequest(request, request.num_computed_tokens, count, table, is_last)

    def _make_room(self, request: Request, num_tokens: int) -> tuple[list[Request], bool]:
        """(those that were preempted, whether the request has room)."""
        out: list[Request] = []
        while not self.cache.allocate(request, num_tokens):
            if self.line == [request]:
                return out, False
            out.append(self._preempt_last())
            if out[-1] is request:
                return out, False
        return out, True

    def _is_hopeless(self, request: Request) -> bool:
        return self.line == [request] and request.num_in_flight == 0

    def _preempt_last(self) -> Request:
        victim = self.line.pop(-1)
        victim.num_preemptions += 1
        went = self.may_swap and self.cache.swap_out(victim)
        victim.status = RequestStatus.SWAPPED if went else RequestStatus.PREEMPTED
        if not went:
            self.cache.free(victim)
            victim.num_computed_tokens = 0
        self.policy.push_front(victim)
        return victim

    def _admit_waiting(self, failed: list[Request]) -> list[ScheduledRequest]:
        """Entries of those that come in. failed: gets those that cannot."""
        entries = []
        while self.left and len(self.line) < self.rows:
            request = self.policy.peek()
            if request is None or request.num_in_flight or self.cache.is_pending(request):
                break
            entry = self._try_admit(request)
            if entry is None:
                if not self.line:
                    failed.append(self._fail(request))
                break
            entries.append(entry)
            self.left -= entry.num_tokens
        return entries

    def _try_admit(self, request: Request) -> ScheduledRequest | None:
        was = request.status
        if was is not RequestStatus.SWAPPED:
            self.cache.admit(request)
        remaining = request.num_tokens - request.num_computed_tokens
        count = min(self.left, remaining)
        if (self.may_cut or count == remaining) and self._claim(request, count):
            self.policy.remove(request)
            insort(self.line, request, key=self.policy.rank)
            request.status = RequestStatus.RUNNING
            return self._put(request, count)
        if was is not RequestStatus.SWAPPED:
            self.cache.free(request)
            request.num_computed_tokens = 0
        return None

    def _claim(self, request: Request, count: int) -> bool:
        """Blocks for its next `count` tokens, if all of its tokens have room."""
        end, size = request.num_computed_tokens + count, self.cache.block_size
        later = (request.num_tokens + size - 1) // size - (end + size - 1) // size
        margin = self.margin if self.line else 0
        if request.status is RequestStatus.SWAPPED:
            return self.cache.swap_in(request, end, keep_free=later + margin)
        return self.cache.allocate(request, end, keep_free=later + margin)

    def _fail(self, request: Request) -> Request:
        request.failure = FailureKind.CAPACITY
        request.error = f"{request.num_tokens} tokens need more room than there is"
        self.finish(request, FinishReason.ERROR)
        return request

    def advance(self, plan: StepPlan) -> None:
        """What is in the plan is on its way."""
        for item in plan.scheduled:
            if item.request.status in ALIVE:
                item.request.num_in_flight += item.num_tokens
                item.request.num_computed_tokens += item.num_tokens
                if item.samples:
                    item.request.num_output_placeholders += 1
                item.request.num_output_placeholders += len(item.drafts)

    def update(self, plan: StepPlan, token_ids: list[list[int]]) -> list[Request]:
        """In two rounds: tokens and counts of all, and then what is filed."""
        results = iter(token_ids)
        news = [(item, next(results) if item.samples else None) for item in plan.scheduled]
        news = [(item, new) for item, new in news if item.request.status in ALIVE]
        for item, new in news:
            request = item.request
            came, promised = new or [], int(item.samples) + len(item.drafts)
            request.token_ids[len(request.token_ids) :] = came
            request.num_output_placeholders -= promised
            request.num_in_flight -= item.num_tokens
            if request.status is not RequestStatus.PREEMPTED:
                request.num_computed_tokens += len(came) - promised
        for item, _ in news:
            at_prompt_end = item.start + item.num_tokens == item.request.num_prompt_tokens
            if item.request.status is RequestStatus.RUNNING and (
                item.num_tokens > 1 or at_prompt_end
            ):
                self.cache.commit(item.request)
        return [item.request for item, new in news if new]

    def finish(self, request: Request, reason: FinishReason) -> None:
        """End it."""
        if request.status not in ALIVE:
            return
        if request.status is RequestStatus.RUNNING:
            ahead = takewhile(lambda other: other is not request, self.line)
            del self.line[sum(1 for _ in ahead)]
        else:
            self.policy.remove(request)
        self.cache.free(request, keep=reason is not FinishReason.ERROR)
        request.status = RequestStatus.FINISHED
        request.finish_reason = reason

    def check(self) -> None:
        """The line is in order."""
        ranks = [self.policy.rank(request) for request in self.line]
        assert ranks == sorted(ranks)
