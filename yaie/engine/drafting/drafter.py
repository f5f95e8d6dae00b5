"""`Drafter`: has a proposer's guesses verified, as many as are worth it, and learns from the outcome."""

import time
from collections.abc import Callable, Collection
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from yaie.core.batch import ScheduledRequest, StepPlan
from yaie.core.contracts import Proposer
from yaie.core.contracts.drafting import Acceptance
from yaie.core.request import Request
from yaie.core.step import StepResult
from yaie.engine.drafting.lookahead import AheadProposer
from yaie.engine.drafting.pace import Pace
from yaie.engine.drafting.proposals import Proposals
from yaie.engine.drafting.room import Room, may_draft, num_left, single_tokens_first
from yaie.engine.step.isolation import Isolation

LIKE_OTHERS = 8
"""Draws that a new request is credited with, as right as those of the others have been."""

T = TypeVar("T")


class Drafter:
    """A PlanStage and a StepObserver. Asks a proposer about the requests that are about to draw; one
    gets drafts in a step for which all of its tokens are known."""

    def __init__(
        self,
        proposer: Proposer,
        room: Room,
        part: Any,
        isolation: Isolation,
        *,
        num_drafts: int | None,
        eos_token_ids: Collection[int],
    ) -> None:
        """part: lab 18's. isolation: where requests fail that raise here. num_drafts: for each request;
        None adapts it to how many are right and what they cost."""
        self._proposer = proposer
        self._room = room
        self._part = part
        self._isolation = isolation
        self._pace = Pace(part.most_worth, num_drafts, _is_free(proposer))
        self._eos_token_ids = eos_token_ids
        self._acceptance: WeakKeyDictionary[Request, Acceptance] = WeakKeyDictionary()
        self._overall: Acceptance = part.Acceptance()
        self._guessed: set[Request] = set()  # in the last plan
        self._proposals = Proposals()

    def extend(self, plan: StepPlan) -> None:
        """Give drafts to the requests of a plan that may have some. Single tokens stay first."""
        self._guessed.clear()
        may = may_draft(plan)
        for item in may:
            self._alone(item, self._of)  # made where it is missing
        self._isolation.take_off(plan.scheduled)
        self._isolation.take_off(may)
        free = [item for item in may if not item.drafts and num_left(item.request) > 0]
        if isinstance(self._proposer, AheadProposer):
            self._take_made(plan, self._proposer, free)
            self._look_ahead(plan)
        else:
            self._guess(plan, self._proposer, free)
        single_tokens_first(plan)

    def stepped(self, plan: StepPlan, result: StepResult, seconds: float) -> None:
        """See StepObserver."""
        made = result.extras.get(Proposals.name)
        spent = 0.0 if made is None else float(made["seconds"][0])
        self._verified(plan, result, seconds - spent)
        if isinstance(self._proposer, AheadProposer):
            self._proposer.take(plan, result)
            most = max((item.ahead or 0 for item in plan.scheduled), default=0)
            if most:
                count = sum(bool(item.ahead) for item in plan.scheduled)
                self._pace.drafted(count, most, spent)

    def _alone(self, item: ScheduledRequest, work: Callable[[Request], T]) -> T | None:
        """What `work` returns for a request, which fails if that raises."""
        return self._isolation.call(item.request, None, work, item.request)

    def _take_made(
        self, plan: StepPlan, proposer: AheadProposer, may: list[ScheduledRequest]
    ) -> None:
        """Give the drafts that there are."""
        asked = [(item.request, num_left(item.request)) for item in may]
        for item, drafts in zip(may, proposer.propose(asked), strict=True):
            if own := self._before_the_end(item.request, list(drafts)):
                self._room.put(plan, item, own)
                self._guessed.add(item.request)

    def _look_ahead(self, plan: StepPlan) -> None:
        """Settle how many drafts are made behind this step, and make room for them."""
        size = len(plan.scheduled)
        most = self._pace.most(size, True)
        drawing = [item for item in plan.scheduled if item.samples]
        if most and all(item.num_tokens == 1 + len(item.drafts) for item in drawing):
            known = [(self._of(item.request), min(most, num_left(item.request) - 1))
                     for item in drawing if num_left(item.request) > 1]  # fmt: skip
            if known:  # or the head just reads what is computed, as of a prompt in chunks
                most = self._pace.number(known, size)
        if not most:
            return
        plan.asks.append(self._proposals)
        for item in plan.scheduled:
            item.ahead = 0
            if item.samples and not item.request.num_output_placeholders:
                item.ahead = max(0, min(most, num_left(item.request) - 1))
            needed = item.start + item.num_tokens + (item.ahead or 0) - 1
            if item.ahead and not self._room.has_blocks(item, needed):
                item.ahead = 1  # for which there is room already

    def _guess(self, plan: StepPlan, proposer: Proposer, may: list[ScheduledRequest]) -> None:
        """Give guesses to those that `may` have some."""
        most = self._pace.most(len(plan.scheduled), _only_decodes(plan))
        if not most or not may:
            return
        size = len(plan.scheduled)
        known = [(self._of(item.request), min(most, num_left(item.request))) for item in may]
        if not proposer.is_free:
            most = self._pace.number(known, size)
            if not most:
                return
        asked = [(item.request, min(most, num_left(item.request))) for item in may]
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
                self._room.put(plan, item, drafts[:most])
                self._guessed.add(item.request)

    def _verified(self, plan: StepPlan, result: StepResult, seconds: float) -> None:
        """A plan was carried out, and took so long."""
        decodes = all(
            item.samples and item.num_tokens == 1 + len(item.drafts) for item in plan.scheduled
        )
        if plan.scheduled and decodes:  # a plan may hold nothing but moves of blocks
            self._pace.stepped(plan.num_tokens, seconds)
        gains = iter(result.token_ids)
        for item in plan.scheduled:
            gained = next(gains) if item.samples else []
            if gained and item.drafts and item.request in self._guessed:
                self._isolation.call(item.request, None, self._learn, item, len(gained))

    def _learn(self, item: ScheduledRequest, num_gained: int) -> None:
        """Note how many of a request's guesses were right."""
        right = self._room.num_right(item, num_gained)
        asked = min(right + 1, len(item.drafts))
        self._of(item.request).add(right, asked)
        self._overall.add(right, asked)

    def _before_the_end(self, request: Request, drafts: list[int]) -> list[int]:
        """The drafts before the first that would end the output."""
        if request.params.ignore_eos:
            return drafts
        ends = (at for at, token in enumerate(drafts) if token in self._eos_token_ids)
        return drafts[: next(ends, len(drafts))]

    def _of(self, request: Request) -> Acceptance:
        if request not in self._acceptance:
            fresh = self._acceptance[request] = self._part.Acceptance()
            fresh.add(round(LIKE_OTHERS * self._overall.rate), LIKE_OTHERS)
        return self._acceptance[request]


def _is_free(proposer: Proposer) -> bool:
    """Whether looking costs next to nothing; what a worker has made has cost something."""
    return proposer.is_free and not isinstance(proposer, AheadProposer)


def _only_decodes(plan: StepPlan) -> bool:
    """Whether no prompt is computed: what a draft costs beside one was not measured."""
    return all(item.num_tokens == 1 and item.samples for item in plan.scheduled)
