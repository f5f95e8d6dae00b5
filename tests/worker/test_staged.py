"""The part of a step that a microbatch is, and what of its draws the first stage waits for."""

from typing import Any

import numpy as np
import torch

from yaie.core.step import StepInput
from yaie.models.whole import Passing
from yaie.worker.row_order import pick
from yaie.worker.staged import Stage


def step(number: int = 3) -> StepInput:
    """Three single tokens, of which the second has two drafts more, and two prompts."""
    return StepInput(
        step=number,
        seats=np.array([4, 2, 7, 1, 5], np.int32),
        starts=np.array([9, 8, 7, 0, 0], np.int32),
        num_tokens=np.array([1, 3, 1, 6, 4], np.int32),
        samples=np.array([True, True, True, False, True]),
        drafts=np.array([11, 12], np.int32),
        num_drafts=np.array([0, 2, 0, 0, 0], np.int32),
        extras={
            "prompt_logprobs": {"rows": np.array([3, 4], np.int32), "num_top": np.array([7, 8])},
            "pooling": {"rows": np.array([0, 4], np.int32), "firsts": np.array([0, 2])},
        },
    )


def part(step: StepInput, run: range) -> StepInput:
    return pick(step, np.array(run))


def test_a_cut_step_leaves_nothing_of_its_rows_out() -> None:
    first, last = part(step(), range(2)), part(step(), range(2, 5))
    assert first.seats.tolist() == [4, 2]
    assert first.drafts.tolist() == [11, 12]
    assert first.num_drafts.tolist() == [0, 2]
    assert list(first.extras) == ["pooling"]
    assert first.extras["pooling"]["rows"].tolist() == [0]
    assert last.seats.tolist() == [7, 1, 5]
    assert len(last.drafts) == 0
    assert last.extras["prompt_logprobs"]["rows"].tolist() == [1, 2]
    assert last.extras["prompt_logprobs"]["num_top"].tolist() == [7, 8]
    pooled = last.extras["pooling"]
    assert (pooled["rows"].tolist(), pooled["firsts"].tolist()) == ([2], [2])


class Draws:
    """A link of the first of two stages on which every draw has arrived: 100, 101, ..."""

    rank, size = 0, 2

    def __init__(self) -> None:
        self.count = 0

    def receive(self, into: torch.Tensor, source: int) -> Any:
        assert source == 1
        into.copy_(torch.arange(100 + self.count, 100 + self.count + len(into)))
        self.count += len(into)
        return self

    def wait(self) -> None:
        pass


class Batch:
    def __init__(self) -> None:
        self.last_tokens = torch.zeros(9, dtype=torch.int64)
        self.lives = np.zeros(9, dtype=np.int64)


class Worker:
    device = torch.device("cpu")

    def __init__(self) -> None:
        self.batch = Batch()

    def accepted(self, drafts: list[int], draws: list[int]) -> list[int]:
        return draws[:2]


def stage() -> tuple[Stage, Draws]:
    draws = Draws()
    passing: Any = Passing(None, draws)  # type: ignore[arg-type]
    return Stage(passing), draws


def test_the_first_stage_waits_for_the_draws_of_its_seats_and_of_those_before_them() -> None:
    first, draws = stage()
    worker: Any = Worker()
    for run in (range(1), range(2, 3), range(4, 5)):
        first.expect(part(step(), run))
    first.await_draws(worker, np.array([7], np.int32), 4)
    assert draws.count == 2
    assert worker.batch.last_tokens[[4, 7, 5]].tolist() == [100, 101, 0]
    first.await_draws(worker, None, 3)
    assert worker.batch.last_tokens[5] == 102


def test_no_step_but_the_last_is_left_open() -> None:
    first, draws = stage()
    worker: Any = Worker()
    first.expect(part(step(1), range(1)))
    first.expect(part(step(2), range(2, 3)))
    first.await_draws(worker, np.array([8], np.int32), 3)
    assert draws.count == 1
    first.await_draws(worker, None, 1)
    assert draws.count == 1


def test_of_drafts_the_last_accepted_draw_is_the_seats_token() -> None:
    first, draws = stage()
    worker: Any = Worker()
    first.expect(part(step(), range(2)))
    first.await_draws(worker, None, 3)
    assert draws.count == 4
    assert worker.batch.last_tokens[[4, 2]].tolist() == [100, 102]


def test_a_part_that_draws_nothing_is_not_waited_for() -> None:
    first, draws = stage()
    first.expect(part(step(), range(3, 4)))
    first.await_draws(None, None, 3)  # type: ignore[arg-type]
    assert draws.count == 0
