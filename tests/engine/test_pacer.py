"""The pacer: how many tokens of prompts a step computes beside requests that generate."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest

from yaie.core.batch import ScheduledRequest, StepPlan
from yaie.core.request import Request
from yaie.core.step import StepResult
from yaie.engine.step.pacer import FIRST_CHUNK, LEAST_CHUNK, PLAIN_STEPS, SHARE, StepPacer


@dataclass
class Steps:
    """Steps of a pacer with a limit of a tenth of a second, told by their tokens."""

    pacer: StepPacer
    scheduler: Any

    def take(self, prompt: int, seconds: float, *, generating: int = 1) -> int:
        """A step with so many tokens of a prompt; the budget of the next one."""
        scheduled = [_share(1, samples=True) for _ in range(generating)]
        if prompt:
            scheduled.append(_share(prompt, samples=False))
        self.scheduler.num_running = len(scheduled)
        self.pacer.stepped(StepPlan(scheduled), StepResult(0), seconds)
        return int(self.scheduler.token_budget)


def _share(num_tokens: int, *, samples: bool) -> ScheduledRequest:
    request = cast(Request, SimpleNamespace(is_finished=False))
    return ScheduledRequest(request, 0, num_tokens, [], samples)


@pytest.fixture
def steps() -> Steps:
    scheduler: Any = SimpleNamespace(token_budget=512, num_running=0)
    return Steps(StepPacer(scheduler, 512, 0.1), scheduler)


def test_a_step_that_took_twice_the_limit_halves_the_next_chunk(steps: Steps) -> None:
    assert steps.take(120, 0.2) == 2 + 60


def test_chunks_grow_step_by_step_while_there_is_time_and_never_above_the_budget(
    steps: Steps,
) -> None:
    budgets = [steps.take(500, 0.001) for _ in range(20)]
    assert budgets[0] < 2 * FIRST_CHUNK
    assert budgets == sorted(budgets)
    assert budgets[-1] == 512


def test_a_short_chunk_does_not_make_room_for_a_long_one(steps: Steps) -> None:
    assert steps.take(4, 0.001) == 2 + FIRST_CHUNK


def test_some_tokens_of_prompts_are_computed_however_slow_steps_are(steps: Steps) -> None:
    budget = [steps.take(100, 9.0, generating=300) for _ in range(5)][-1]
    assert budget == 301 + LEAST_CHUNK


def test_a_chunk_may_take_as_long_as_the_step_without_it(steps: Steps) -> None:
    for _ in range(PLAIN_STEPS):
        steps.take(0, 0.5)
    assert steps.take(100, 0.5 * SHARE, generating=1) == pytest.approx(2 + 100, abs=1)


def test_steps_that_others_held_up_make_no_room_for_longer_ones(steps: Steps) -> None:
    steps.take(0, 0.01)
    for _ in range(PLAIN_STEPS - 1):
        steps.take(0, 0.5)
    assert steps.take(100, 0.1) == 2 + 100


def test_what_a_step_takes_without_prompts_is_learnt_anew(steps: Steps) -> None:
    steps.take(0, 0.01)
    for _ in range(PLAIN_STEPS):
        steps.take(0, 0.5)
    assert steps.take(100, 0.5 * SHARE) == 2 + 100


def test_without_a_request_that_generates_the_budget_is_whole(steps: Steps) -> None:
    assert steps.take(120, 9.0) < 512
    assert steps.take(120, 9.0, generating=0) == 512
