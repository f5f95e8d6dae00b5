"""`Drafter`: adds drafts to a plan before it is sent, and learns from what became of them.

Two kinds: guesses of a proposer, as many as are worth it, and what a grammar forces. Where a schema
leaves no choice, as in the name of a property, the text that comes is known (jump-forward, Zheng et al.
2024). Its tokens are drafts as well: the model may prefer to cut the same text in another way.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from yaie.core.batch import ScheduledRequest, StepOutcome, StepPlan
from yaie.core.contracts import KVCacheManager, Proposer
from yaie.core.contracts.drafting import Acceptance
from yaie.core.request import FailureKind, Request
from yaie.engine.drafting.ahead import AheadProposer
from yaie.engine.drafting.pace import Pace
from yaie.engine.step.isolation import Isolation

MOST_FORCED = 32
"""Tokens of text that a grammar forces, in a step."""

LIKE_OTHERS = 8
"""Draws that a new request is credited with, as right as those of the others have been."""

T = TypeVar("T")
OnVerified = Callable[[int, int, int], None]
"""Told of a step: requests with drafts, their drafts, and how many were accepted."""


class Drafter:
    """Asks a proposer about the requests that are about to draw, as far as budget and blocks allow.

    A request gets drafts in a step for which all of its tokens are known. Nobody is preempted for them.
    """

    def __init__(
        self,
        proposer: Proposer | None,
        cache: KVCacheManager,
        part: Any,
        *,
        token_budget: int,
        num_drafts: int | None,
        eos_token_ids: Collection[int],
        on_verified: OnVerified | None = None,
        isolation: Isolation | None = None,
    ) -> None:
        """proposer: None guesses nothing. part: lab 18's. num_drafts: for each request; None adapts it
        to how many are right and what they cost. isolation: where requests fail that raise here."""
        self._proposer = proposer
        self._cache = cache
        self._part = part
        self._token_budget = token_budget
        self._pace = Pace(part.most_worth, num_drafts, _is_free(proposer))
        self._eos_token_ids = eos_token_ids
        self._on_verified = on_verified
        self._isolation = isolation or Isolation()
        self._acceptance: WeakKeyDictionary[Request, Acceptance] = WeakKeyDictionary()
        self._overall: Acceptance = part.Acceptance()
        self._guessed: set[Request] = set()  # in the last plan

    def extend(self, plan: StepPlan) -> None:
        """Give drafts to the requests of a plan that may have some. Single tokens stay first."""
        self._guessed.clear()
        may = [item for item in plan.scheduled if item.samples and not item.request.num_unread]
        for item in may:
            if item.request.matcher is not None:
                forced = self._alone(item, self._forced, FailureKind.CONSTRAINT)
                self._put(plan, item, forced or [])
        if self._proposer is not None:
            for item in may:
                self._alone(item, self._of)  # made where it is missing
            self._isolation.take_off(plan.scheduled)
            self._isolation.take_off(may)
            free = [item for item in may if not item.drafts and _num_left(item.request) > 0]
            if isinstance(self._proposer, AheadProposer):
                self._take_made(plan, self._proposer, free)
                self._look_ahead(plan)
            else:
                self._guess(plan, self._proposer, free)
        plan.scheduled.sort(key=lambda item: item.num_tokens > 1)

    def _alone(
        self,
        item: ScheduledRequest,
        work: Callable[[Request], T],
        kind: FailureKind = FailureKind.ENGINE,
    ) -> T | None:
        """What `work` returns for a request, which fails if that raises."""
        return self._isolation.call(item.request, None, work, item.request, kind=kind)

    def _take_made(
        self, plan: StepPlan, proposer: AheadProposer, may: list[ScheduledRequest]
    ) -> None:
        """Give the drafts that there are."""
        asked = [(item.request, _num_left(item.request)) for item in may]
        for item, drafts in zip(may, proposer.propose(asked), strict=True):
            if own := self._before_the_end(item.request, list(drafts)):
                self._put(plan, item, own)
                self._guessed.add(item.request)

    def _look_ahead(self, plan: StepPlan) -> None:
        """Settle how many drafts are made behind this step, and make room for them."""
        size = len(plan.scheduled)
        most = self._pace.most(size, True)
        drawing = [item for item in plan.scheduled if item.samples]
        if most and all(item.num_tokens == 1 + len(item.drafts) for item in drawing):
            known = [(self._of(item.request), min(most, _num_left(item.request) - 1))
                     for item in drawing if _num_left(item.request) > 1]  # fmt: skip
            most = self._pace.number(known, size) if known else 0
        if not most:
            return
        for item in plan.scheduled:
            item.ahead = 0
            if item.samples and not item.request.num_unread:
                item.ahead = max(0, min(most, _num_left(item.request) - 1))
            needed = item.start + item.num_tokens + (item.ahead or 0) - 1
            if item.ahead and not self._cache.allocate(item.request, needed):
                item.ahead = 1  # for which there is room already
            item.block_table = self._cache.block_table(item.request)

    def made_ahead(
        self,
        plan: StepPlan,
        outcome: StepOutcome,
        drafts: Mapping[int, Sequence[int]],
        seconds: float,
    ) -> None:
        """The worker has made these drafts behind a plan, by row, and it took so long."""
        if not isinstance(self._proposer, AheadProposer):
            return
        self._proposer.take(plan, outcome, drafts)
        most = max((item.ahead or 0 for item in plan.scheduled), default=0)
        if most:
            self._pace.drafted(sum(bool(item.ahead) for item in plan.scheduled), most, seconds)

    def _guess(self, plan: StepPlan, proposer: Proposer, may: list[ScheduledRequest]) -> None:
        """Give guesses to those that `may` have some."""
        most = self._pace.most(len(plan.scheduled), _only_decodes(plan))
        if not most or not may:
            return
        size = len(plan.scheduled)
        known = [(self._of(item.request), min(most, _num_left(item.request))) for item in may]
        if not proposer.is_free:
            most = self._pace.number(known, size)
            if not most:
                return
        asked = [(item.request, min(most, _num_left(item.request))) for item in may]
        begin = time.perf_counter()
        offered = proposer.propose(asked)
        if not proposer.is_free:
            self._pace.drafted(len(asked), most, time.perf_counter() - begin)
        offers = [
            (item, self._before_the_end(item.request, list(drafts)[:room]))
            for item, (_, room), drafts in zip(may, asked, offered, strict=True)
        ]
        offers = [(item, drafts) for item, drafts in offers if drafts]
        if not offers:
            self._pace.nothing(size)
        elif proposer.is_free:
            known = [(self._of(item.request), len(drafts)) for item, drafts in offers]
            most = self._pace.number(known, size)
        for item, drafts in offers:
            if most:
                self._put(plan, item, drafts[:most])
                self._guessed.add(item.request)

    def verified(self, plan: StepPlan, outcome: StepOutcome, seconds: float) -> None:
        """A plan was carried out, and took so long."""
        decodes = all(
            item.samples and item.num_tokens == 1 + len(item.drafts) for item in plan.scheduled
        )
        if plan.scheduled and decodes:  # a plan may hold nothing but moves of blocks
            self._pace.stepped(plan.num_tokens, seconds)
        gains = iter(outcome.token_ids)
        num_requests = num_drafts = num_accepted = 0
        for item in plan.scheduled:
            gained = next(gains) if item.samples else []
            if item.drafts and gained:
                right = self._isolation.call(item.request, 0, self._learn, item, len(gained))
                num_requests += 1
                num_drafts += len(item.drafts)
                num_accepted += right
        if num_requests and self._on_verified is not None:
            self._on_verified(num_requests, num_drafts, num_accepted)

    def _learn(self, item: ScheduledRequest, num_gained: int) -> int:
        """How many of a request's drafts were right, which is noted if they were guesses."""
        kept = self._part.kept(
            item.start, item.num_tokens, len(item.drafts), num_gained, self._cache.block_size
        )
        right = len(item.drafts) - int(kept.num_rejected)
        if item.request in self._guessed:
            asked = min(right + 1, len(item.drafts))
            self._of(item.request).add(right, asked)
            self._overall.add(right, asked)
        return right

    def _forced(self, request: Request) -> list[int]:
        """Tokens of the text that a grammar leaves no choice about."""
        most = min(MOST_FORCED, _num_left(request))
        return list(request.matcher.forced(most)) if most > 0 else []

    def _before_the_end(self, request: Request, drafts: list[int]) -> list[int]:
        """The drafts before the first that would end the output."""
        if request.params.ignore_eos:
            return drafts
        ends = (at for at, token in enumerate(drafts) if token in self._eos_token_ids)
        return drafts[: next(ends, len(drafts))]

    def _put(self, plan: StepPlan, item: ScheduledRequest, drafts: list[int]) -> None:
        """Have these drafts verified, as far as budget and blocks allow."""
        drafts = drafts[: max(0, self._token_budget - plan.num_tokens)]
        needed = item.start + item.num_tokens + len(drafts)
        if drafts and self._cache.allocate(item.request, needed):
            item.drafts = drafts
            item.num_tokens += len(drafts)
            item.block_table = self._cache.block_table(item.request)

    def _of(self, request: Request) -> Acceptance:
        if request not in self._acceptance:
            fresh = self._acceptance[request] = self._part.Acceptance()
            fresh.add(round(LIKE_OTHERS * self._overall.rate), LIKE_OTHERS)
        return self._acceptance[request]


def _is_free(proposer: Proposer | None) -> bool:
    """Whether looking costs next to nothing; what a worker has made has cost something."""
    return proposer is None or (proposer.is_free and not isinstance(proposer, AheadProposer))


def _num_left(request: Request) -> int:
    """How many drafts there may be: behind each stands a draw, and one before them all."""
    return request.max_tokens - request.num_output_tokens - 1


def _only_decodes(plan: StepPlan) -> bool:
    """Whether no prompt is computed: what a draft costs beside one was not measured."""
    return all(item.num_tokens == 1 and item.samples for item in plan.scheduled)
