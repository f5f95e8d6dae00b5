"""`Drafter`: adds drafts to a plan before it is sent, and learns from what became of them.

Two kinds: guesses of a proposer, as many as are worth it, and what a grammar forces. Where a schema
leaves no choice, as in the name of a property, the text that comes is known (jump-forward, Zheng et al.
2024). Its tokens are drafts as well: the model may prefer to cut the same text in another way.
"""

from collections.abc import Callable, Collection
from weakref import WeakKeyDictionary

from yaie.core.batch import ScheduledRequest, StepOutcome, StepPlan
from yaie.core.contracts import KVCacheManager, Proposer
from yaie.core.request import Request
from yaie.engine.drafting.length import Acceptance, StepCosts, most_worth

MOST_DRAFTS = 8
"""For a request in a step, if their number adapts."""
MOST_FORCED = 32
"""Tokens of text that a grammar forces, in a step."""
RESTED_STEPS = 16
"""Before it is looked again whether drafts are worth it: looking costs time, too."""

OnVerified = Callable[[int, int, int], None]
"""Told of a step: requests with drafts, their drafts, and how many were accepted."""


class Drafter:
    """Asks a proposer about each request that is about to draw, as far as budget and blocks allow.

    A request gets drafts in a step for which all of its tokens are known. Nobody is preempted for them.
    """

    def __init__(
        self,
        proposer: Proposer | None,
        cache: KVCacheManager,
        *,
        token_budget: int,
        num_drafts: int | None,
        eos_token_ids: Collection[int],
        on_verified: OnVerified | None = None,
    ) -> None:
        """proposer: None guesses nothing. num_drafts: for each request; None adapts it to how
        many are right and what they cost."""
        self._proposer = proposer
        self._cache = cache
        self._token_budget = token_budget
        self._num_drafts = num_drafts
        self._eos_token_ids = eos_token_ids
        self._on_verified = on_verified
        self._acceptance: WeakKeyDictionary[Request, Acceptance] = WeakKeyDictionary()
        self._costs = StepCosts()
        self._guessed: set[Request] = set()  # in the last plan
        self._rest = 0

    def extend(self, plan: StepPlan) -> None:
        """Give drafts to the requests of a plan that may have some. Single tokens stay first."""
        self._guessed.clear()
        may = [item for item in plan.scheduled if item.samples and not item.request.num_unread]
        for item in may:
            if item.request.matcher is not None:
                self._put(plan, item, self._forced(item.request))
        if self._proposer is not None:
            self._guess(plan, self._proposer, [item for item in may if not item.drafts])
        plan.scheduled.sort(key=lambda item: item.num_tokens > 1)

    def _guess(self, plan: StepPlan, proposer: Proposer, may: list[ScheduledRequest]) -> None:
        """Give guesses to those that `may` have some."""
        if self._num_drafts is None and (self._rest > 0 or not _only_decodes(plan)):
            self._rest = max(0, self._rest - 1)
            return
        offers = self._offers(proposer, may)
        most = self._num_drafts or self._worth(plan, offers)
        for item, drafts in offers:
            self._put(plan, item, drafts[:most])
            self._guessed.add(item.request)

    def verified(self, plan: StepPlan, outcome: StepOutcome, seconds: float) -> None:
        """A plan was carried out, and took so long."""
        decodes = all(
            item.samples and item.num_tokens == 1 + len(item.drafts) for item in plan.scheduled
        )
        if plan.scheduled and decodes:  # a plan may hold nothing but moves of blocks
            self._costs.add(plan.num_tokens, seconds)
        gains = iter(outcome.token_ids)
        num_requests = num_drafts = num_accepted = 0
        for item in plan.scheduled:
            gained = next(gains) if item.samples else []
            if item.drafts and gained:
                right = len(gained) - 1
                if item.request in self._guessed:
                    self._of(item.request).add(right, min(len(gained), len(item.drafts)))
                num_requests += 1
                num_drafts += len(item.drafts)
                num_accepted += right
        if num_requests and self._on_verified is not None:
            self._on_verified(num_requests, num_drafts, num_accepted)

    def _forced(self, request: Request) -> list[int]:
        """Tokens of the text that a grammar leaves no choice about."""
        most = min(MOST_FORCED, _num_left(request))
        return list(request.matcher.forced(most)) if most > 0 else []

    def _offers(
        self, proposer: Proposer, may: list[ScheduledRequest]
    ) -> list[tuple[ScheduledRequest, list[int]]]:
        """What the proposer has for each of those that may have guesses."""
        offers = []
        for item in may:
            most = min(self._num_drafts or MOST_DRAFTS, _num_left(item.request))
            drafts = list(proposer.propose(item.request, most))[:most] if most > 0 else []
            if drafts := self._before_the_end(item.request, drafts):
                offers.append((item, drafts))
        return offers

    def _before_the_end(self, request: Request, drafts: list[int]) -> list[int]:
        """The drafts before the first that would end the output."""
        if request.params.ignore_eos:
            return drafts
        ends = (at for at, token in enumerate(drafts) if token in self._eos_token_ids)
        return drafts[: next(ends, len(drafts))]

    def _worth(self, plan: StepPlan, offers: list[tuple[ScheduledRequest, list[int]]]) -> int:
        """How many drafts to take of each offer; a while without looking follows if none."""
        if not offers:
            return 0
        known = [(self._of(item.request), len(drafts)) for item, drafts in offers]
        most = most_worth(known, len(plan.scheduled) - len(offers), self._costs, MOST_DRAFTS)
        if most == 0:
            self._rest = RESTED_STEPS
            self._costs.forget()  # or what was slow or wrong once would never be tried again
            for acceptance, _ in known:
                acceptance.add(1, 2)
        return most

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
            self._acceptance[request] = Acceptance()
        return self._acceptance[request]


def _num_left(request: Request) -> int:
    """How many drafts there may be: behind each stands a draw, and one before them all."""
    return request.max_tokens - request.num_output_tokens - 1


def _only_decodes(plan: StepPlan) -> bool:
    """Whether no prompt is computed: what a draft costs beside one was not measured."""
    return all(item.num_tokens == 1 and item.samples for item in plan.scheduled)
