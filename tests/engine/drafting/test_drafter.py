"""Who gets drafts in a plan, and what is learnt from a step."""

from collections.abc import Sequence
from typing import Any

import pytest

from solutions import speculative
from solutions.paged_cache import BlockManager, KVCacheManager
from solutions.scheduler import POLICIES, Scheduler
from yaie.core.batch import StepPlan
from yaie.core.params import SamplingParams
from yaie.core.request import Request
from yaie.core.step import StepResult
from yaie.engine.drafting.drafter import Drafter
from yaie.engine.drafting.drafts import Drafts
from yaie.engine.drafting.pace import MOST_DRAFTS, RESTED_STEPS
from yaie.engine.drafting.room import Room
from yaie.engine.step.hooks import Hooks
from yaie.engine.step.isolation import Isolation

EOS = 1


class Always:
    """Proposes 50, 51, 52, ... for everybody."""

    is_free = True

    def __init__(self) -> None:
        self.asked: list[str] = []

    def propose(self, asked: Sequence[tuple[Request, int]]) -> list[Sequence[int]]:
        self.asked += [request.request_id for request, _ in asked]
        return [range(50, 50 + most) for _, most in asked]


class Rig:
    """A scheduler with what drafts, whose steps draw token 9, or all drafts and 9."""

    def __init__(self, num_blocks: int = 64, budget: int = 64, **options: Any) -> None:
        blocks = BlockManager(num_blocks, 4, 0)
        self.cache = KVCacheManager(blocks, None)
        self.scheduler = Scheduler(
            self.cache,
            POLICIES["fcfs"](self.cache),
            max_num_seqs=8,
            token_budget=budget,
            watermark=0,
        )
        self.proposer, self.told = Always(), []  # type: ignore[var-annotated]
        options = {"num_drafts": 3, "eos_token_ids": {EOS}, **options}
        proposer = options.pop("proposer", self.proposer)
        self.hooks, isolation = Hooks(), Isolation()
        room = Room(self.cache, speculative, budget)
        drafts = Drafts(self.hooks, room, isolation, lambda *seen: self.told.append(seen))
        if proposer is not None:
            drafts.guess(Drafter(proposer, room, speculative, isolation, **options))
        drafts.follow_grammars()

    def add(self, name: str, length: int = 6, max_tokens: int = 40, **params: Any) -> Request:
        request = Request(name, [7] * length, SamplingParams(**params), max_tokens=max_tokens)
        self.scheduler.add(request)
        return request

    def extend(self, plan: StepPlan) -> None:
        for stage in self.hooks.stages:
            stage.extend(plan)

    def stepped(self, plan: StepPlan, drawn: list[list[int]], seconds: float) -> None:
        for observer in self.hooks.observers:
            observer.stepped(plan, StepResult(0, drawn), seconds)

    def step(self, right: int = 0, per_draft: float = 0.0) -> list[tuple[str, int, list[int]]]:
        """(request, its tokens, its drafts) of the next plan, of whose drafts so many are right. A step
        takes a second, and so much more for each draft."""
        plan = self.scheduler.schedule()
        self.extend(plan)
        self.scheduler.advance(plan)
        drawn = [[*list(item.drafts)[:right], 9] for item in plan.scheduled if item.samples]
        seconds = 1 + per_draft * sum(len(item.drafts) for item in plan.scheduled)
        self.stepped(plan, drawn, seconds)
        self.scheduler.update(plan, drawn)
        self.scheduler.check()
        return [
            (item.request.request_id, item.num_tokens, list(item.drafts)) for item in plan.scheduled
        ]


def test_request_gets_drafts_in_every_step_that_draws() -> None:
    rig = Rig()
    request = rig.add("a")
    assert rig.step(right=2) == [("a", 9, [50, 51, 52])]
    assert rig.step(right=0) == [("a", 4, [50, 51, 52])]
    assert request.output_token_ids == [50, 51, 9, 9]
    assert request.num_computed_tokens == request.num_tokens - 1


def test_chunk_that_draws_nothing_gets_none_and_single_tokens_stay_first() -> None:
    rig = Rig(budget=16)
    rig.add("a", length=3)
    rig.step()
    rig.add("long", length=40)
    assert [(name, count) for name, count, _ in rig.step()] == [("a", 1), ("long", 15)]
    rig = Rig(budget=16)
    rig.add("long", length=20)
    assert rig.step() == [("long", 16, [])]
    assert rig.step() == [("long", 7, [50, 51, 52])]


def test_drafts_keep_to_the_budget() -> None:
    rig = Rig(budget=8)
    for name in "abc":
        rig.add(name, length=2)
    rig.step()
    shares = rig.step()
    assert sum(count for _, count, _ in shares) == 8
    assert sorted(len(drafts) for _, _, drafts in shares) == [0, 2, 3]


def test_no_draft_goes_beyond_the_last_token_that_is_asked_for() -> None:
    rig = Rig()
    rig.add("a", max_tokens=3)
    assert rig.step() == [("a", 8, [50, 51])]
    assert rig.step() == [("a", 2, [50])]
    assert rig.step() == [("a", 1, [])]


def test_no_draft_without_blocks_and_nobody_is_preempted_for_one() -> None:
    rig = Rig(num_blocks=4)
    one, other = rig.add("a", length=7), rig.add("b", length=7)
    rig.step()
    shares = rig.step()
    assert [(name, drafts) for name, _, drafts in shares] == [("a", []), ("b", [])]
    assert one.num_preemptions == other.num_preemptions == 0


def test_nothing_is_guessed_behind_the_end() -> None:
    class Ends(Always):
        def propose(self, asked: Sequence[tuple[Request, int]]) -> list[Sequence[int]]:
            return [[60, EOS, 61] for _ in asked]

    rig = Rig(proposer=Ends())
    rig.add("a")
    rig.add("b", ignore_eos=True)
    assert sorted(drafts for _, _, drafts in rig.step()) == [[60], [60, EOS, 61]]


def test_plan_that_only_moves_blocks_is_no_step_to_learn_from() -> None:
    rig = Rig(num_drafts=None)
    plan = StepPlan(swap_out=[(0, 0)])
    rig.extend(plan)
    rig.stepped(plan, [], 0.1)
    assert rig.told == []


class Forces:
    """A grammar that leaves no choice about two tokens."""

    def forced(self, most: int) -> list[int]:
        return [70, 71][:most]


def test_what_a_grammar_forces_is_taken_without_a_proposer_and_in_the_place_of_a_guess() -> None:
    for proposer in (None, Always()):
        rig = Rig(proposer=proposer, num_drafts=None)
        rig.add("a").matcher = Forces()
        assert rig.step(right=2) == [("a", 8, [70, 71])]
        assert rig.step(right=2) == [("a", 3, [70, 71])]


def test_forced_tokens_keep_to_budget_and_to_the_tokens_that_are_asked_for() -> None:
    rig = Rig(proposer=None, budget=7)
    rig.add("a").matcher = Forces()
    assert rig.step() == [("a", 7, [70])]
    rig = Rig(proposer=None)
    rig.add("a", max_tokens=2).matcher = Forces()
    assert rig.step() == [("a", 7, [70])]


def test_drafts_are_counted() -> None:
    rig = Rig()
    rig.add("a")
    rig.add("b")
    rig.step(right=2)
    rig.step(right=0)
    assert rig.told == [(2, 6, 4), (2, 6, 0)]


def test_number_grows_where_drafts_are_right_and_cost_nothing() -> None:
    rig = Rig(num_drafts=None)
    rig.add("a", max_tokens=200)
    numbers = [len(rig.step(right=8)[0][2]) for _ in range(12)]
    assert numbers[-1] == MOST_DRAFTS


@pytest.mark.parametrize("dear", [False, True])
def test_drafts_that_are_wrong_stop_where_they_cost_and_nobody_is_asked_for_a_while(
    dear: bool,
) -> None:
    rig = Rig(num_drafts=None)
    rig.add("a", max_tokens=400)
    for _ in range(200):
        rig.step(per_draft=float(dear))
    if dear:
        assert len(rig.proposer.asked) < 3 * 200 / RESTED_STEPS
    else:
        assert len(rig.proposer.asked) > 200 - 2 * RESTED_STEPS


def test_steps_with_prompts_are_left_alone_where_the_number_adapts() -> None:
    rig = Rig(num_drafts=None)
    rig.add("a", length=3)
    rig.step()
    rig.add("b", length=3)
    assert [(name, drafts) for name, _, drafts in rig.step()] == [("a", []), ("b", [])]
