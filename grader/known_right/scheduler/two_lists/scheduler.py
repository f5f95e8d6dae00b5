"""A scheduler of free functions: the class keeps its settings and hands a state to them.

Those that run are two parallel lists, ranks and requests. A step is a generator of shares, which are
sorted when all are there. Nothing of it is a method of the stub, and `num_running` is made when it is
asked for.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from yaie.core.batch import ScheduledRequest, StepPlan
from yaie.core.contracts import KVCacheManager, SchedulingPolicy
from yaie.core.errors import InvariantError
from yaie.core.request import FailureKind, FinishReason, Request, RequestStatus


@dataclass
class State:
    """All there is. `settings` are the scheduler's own keywords."""

    cache: KVCacheManager
    policy: SchedulingPolicy
    settings: dict[str, int]
    ranks: list[tuple[int, ...]] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)

    def seat(self, request: Request) -> None:
        rank = self.policy.rank(request)
        at = bisect_left(self.ranks, rank)
        self.ranks.insert(at, rank)
        self.requests.insert(at, request)
        request.status = RequestStatus.RUNNING

    def unseat(self, request: Request) -> None:
        at = bisect_left(self.ranks, self.policy.rank(request))
        del self.ranks[at], self.requests[at]

    def blocks(self, num_tokens: int) -> int:
        return -(num_tokens // -self.cache.block_size)


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
        self.token_budget = token_budget
        settings = {
            "rows": max_num_seqs,
            "cut": chunked_prefill,
            "swap": swap,
            "watermark": watermark,
        }
        self._state = State(cache, policy, settings)

    def __getattr__(self, name: str) -> int:
        if name == "num_running":
            return len(self._state.requests)
        if name == "num_waiting":
            return len(self._state.policy)
        raise AttributeError(name)

    def add(self, request: Request) -> None:
        """Queue a request."""
        self._state.policy.push(request)

    def schedule(self) -> StepPlan:
        """Plan one step."""
        plan = StepPlan()
        shares = [*continuing(self._state, plan, self.token_budget)]
        if not plan.preempted:
            left = self.token_budget - sum(share.num_tokens for share in shares)
            shares += entering(self._state, plan, left)
        plan.scheduled.extend(sorted(shares, key=lambda share: min(2, share.num_tokens)))
        moves = self._state.cache.take_moves()
        for into, pairs in zip((plan.swap_out, plan.swap_in, plan.copies), moves, strict=True):
            into.extend(pairs)
        return plan

    def advance(self, plan: StepPlan) -> None:
        """On its way."""
        for share in plan.scheduled:
            if not share.request.is_finished:
                count(share, 1)
                share.request.num_computed_tokens += share.num_tokens

    def update(self, plan: StepPlan, token_ids: list[list[int]]) -> list[Request]:
        """Back."""
        return [*gaining(self._state, plan, list(reversed(token_ids)))]

    def finish(self, request: Request, reason: FinishReason) -> None:
        """Over."""
        end(self._state, request, reason)

    def check(self) -> None:
        """Raise InvariantError unless the two lists go together."""
        state = self._state
        if state.ranks != sorted(map(state.policy.rank, state.requests)):
            raise InvariantError("ranks are not those of the requests, or out of order")
        for request in state.requests:
            if state.blocks(request.num_computed_tokens) > len(state.cache.block_table(request)):
                raise InvariantError(f"{request.request_id} lacks blocks")


def wanted(request: Request) -> int:
    """Tokens without K and V, unless a step in flight must be read first."""
    unread, rest = request.num_output_placeholders, request.num_tokens - request.num_computed_tokens
    full = request.num_output_tokens + unread >= request.max_tokens
    return 0 if unread >= 2 or (unread == 1 and full) else rest


def continuing(state: State, plan: StepPlan, budget: int) -> Iterator[ScheduledRequest]:
    """Shares of those that run, in order of rank."""
    line = [(request, wanted(request)) for request in state.requests]
    singles = sum(1 for _, number in line if number == 1)
    purse = [max(0, budget - singles), min(budget, singles)]  # for chunks, for single tokens
    for request, number in line:
        kind = int(number == 1)
        number = min(number, purse[kind])
        if (
            number
            and request.status is RequestStatus.RUNNING
            and squeeze(state, plan, request, number)
        ):
            purse[kind] -= number
            yield share_of(state, request, number)


def squeeze(state: State, plan: StepPlan, request: Request, number: int) -> bool:
    """Whether there is room for its next tokens, in the end."""
    while not (fits := state.cache.allocate(request, request.num_computed_tokens + number)):
        if len(state.requests) == 1:
            if not request.num_in_flight:
                refuse(state, plan, request)
            break
        if send_back(state, plan) is request:
            break
    return fits


def send_back(state: State, plan: StepPlan) -> Request:
    """The last in rank."""
    request = state.requests[-1]
    state.unseat(request)
    if state.settings["swap"] and state.cache.swap_out(request):
        request.status = RequestStatus.SWAPPED
    else:
        request.status = RequestStatus.PREEMPTED
        state.cache.free(request)
        request.num_computed_tokens = 0
    request.num_preemptions += 1
    plan.preempted.append(request)
    state.policy.push_front(request)
    return request


def entering(state: State, plan: StepPlan, budget: int) -> Iterator[ScheduledRequest]:
    """Shares of those that come in."""
    while budget > 0 and len(state.requests) < state.settings["rows"]:
        request = state.policy.peek()
        if request is None or request.num_in_flight or state.cache.is_pending(request):
            return
        number = enter(state, request, budget)
        if number == 0:
            if not state.requests:
                refuse(state, plan, request)
            return
        budget -= number
        yield share_of(state, request, number)


def enter(state: State, request: Request, budget: int) -> int:
    """The tokens that it may compute, with a seat; or 0, as if it had never been asked."""
    comes_back = request.status is RequestStatus.SWAPPED
    claim: Callable[..., bool] = state.cache.swap_in if comes_back else state.cache.allocate
    begin = request.num_computed_tokens if comes_back else state.cache.admit(request)
    stop = min(begin + budget, request.num_tokens)
    spare = state.blocks(request.num_tokens) - state.blocks(stop)
    spare += state.settings["watermark"] if state.requests else 0
    if stop < request.num_tokens and not state.settings["cut"]:
        got = False
    else:
        got = claim(request, stop, keep_free=spare)
    if got:
        state.policy.remove(request)
        state.seat(request)
    elif not comes_back:
        state.cache.free(request)
        request.num_computed_tokens = 0
    return stop - begin if got else 0


def share_of(state: State, request: Request, number: int) -> ScheduledRequest:
    start, table = request.num_computed_tokens, state.cache.block_table(request)
    return ScheduledRequest(request, start, number, table, start + number == request.num_tokens)


def count(share: ScheduledRequest, sign: int) -> None:
    """What a share has on its way."""
    share.request.num_in_flight += sign * share.num_tokens
    share.request.num_output_placeholders += sign * (share.samples + len(share.drafts))


def gaining(state: State, plan: StepPlan, results: list[list[int]]) -> Iterator[Request]:
    """results: backwards."""
    for share in plan.scheduled:
        request, new = share.request, results.pop() if share.samples else []
        if request.is_finished:
            continue
        count(share, -1)
        for token_id in new:
            request.token_ids.append(token_id)
        if request.status is not RequestStatus.PREEMPTED:
            request.num_computed_tokens += len(new) - share.samples - len(share.drafts)
        is_prompt = share.num_tokens > 1 or share.start == request.num_prompt_tokens - 1
        if is_prompt and request.status is RequestStatus.RUNNING:
            state.cache.commit(request)
        if new:
            yield request


def refuse(state: State, plan: StepPlan, request: Request) -> None:
    """A request that no empty engine has room for."""
    request.error = f"no room for {request.num_tokens} tokens"
    request.failure = FailureKind.CAPACITY
    end(state, request, FinishReason.ERROR)
    plan.failed.append(request)


def end(state: State, request: Request, reason: FinishReason) -> None:
    """In any state; nothing if it has ended."""
    if request.is_finished:
        return
    leave = state.unseat if request.status is RequestStatus.RUNNING else state.policy.remove
    leave(request)
    state.cache.free(request, keep=reason is not FinishReason.ERROR)
    request.status, request.finish_reason = RequestStatus.FINISHED, reason
