"""Task 12.5 beyond one call: batches of other sizes and logits, draws that stay, nothing left behind."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch

from grader.kit import expect, start_script, task
from grader.kit.kernels import sampling_batch
from grader.kit.memory import HISTORY
from grader.kit.standing import expect_results_stand
from grader.kit.storage import CALLS, FEW, calls_kept, expect_nothing_is_kept
from grader.suites.triton_sampling.plugged import expect_draws, random_logits
from grader.suites.triton_sampling.plugging import sampler_of
from yaie.core.batch import PenaltyBatch, SamplingBatch

TASK = "12.5"
OWN = (
    "Each step brings other requests and other logits: what one call made is of no use to the next."
)


def penalised(number: int) -> SamplingBatch:
    """A batch of `number` greedy rows whose first `number` tokens have been said."""
    counts = torch.zeros(number, 40)
    counts[:, :number] = 2
    batch = sampling_batch(number, temperature=0.0)
    batch.penalties = PenaltyBatch(
        presence=torch.full((number,), 9.0),
        frequency=torch.zeros(number),
        repetition=torch.ones(number),
        output_counts=counts,
        prompt_mask=torch.zeros(number, 40, dtype=torch.bool),
    )
    return batch


@contextmanager
def one_sampler(part: ModuleType) -> Iterator[None]:
    """All calls are made of the same object, as the engine makes them."""
    sampler = part.Sampler()
    with patch.object(part, "Sampler", lambda: sampler):
        yield


@task(TASK)
def test_batches_of_other_sizes(part: ModuleType) -> None:
    """A call draws for its own rows and logits, after calls with fewer and with others."""
    with one_sampler(part):
        for number in (1, 3, 2):
            logits = random_logits(number, 40, seed=number)
            batch = sampling_batch(number, seeds=list(range(number)))
            expect_draws(part, TASK, logits, batch, f"the draws of {number} rows", why=OWN)
        for number in (2, 2, 1):
            logits = random_logits(number, 40, seed=10 + number)
            what = f"the draws of {number} rows with penalties"
            expect_draws(part, TASK, logits, penalised(number), what, why=OWN)
            start_script()


@task(TASK)
def test_tensors_that_are_filled_again(part: ModuleType) -> None:
    """The engine may fill the tensors of the step before with other logits and other steps."""
    logits = random_logits(2, 40, seed=3)
    batch = sampling_batch(2, top_k=[0, 2])
    with one_sampler(part):
        for number in range(2):
            logits.copy_(random_logits(2, 40, seed=number))
            batch.steps += 1
            what = f"the draws of call {number + 1}, from the same two tensors with other logits"
            expect_draws(part, TASK, logits, batch, what, why=OWN)


@task(TASK)
def test_draws_of_many_calls(part: ModuleType) -> None:
    """The tokens of a call are its own, and nothing is left behind."""
    with sampler_of(part, TASK) as sampler:

        def draw(number: int) -> Any:
            logits = random_logits(2, 40, seed=number)
            return sampler.sample(logits, sampling_batch(2, temperature=0.0))

        expect_results_stand([lambda n=n: draw(n) for n in (1, 2, 3)], "sample")  # type: ignore[misc]
        nothing, empty = torch.empty(0, 50), sampling_batch(0)
        expect_nothing_is_kept({"sample": lambda: sampler.sample(nothing, empty)})
        one, greedy = random_logits(1, 8), sampling_batch(1, temperature=0.0)
        number, _ = calls_kept(lambda: sampler.sample(one, greedy))
        problem = f"sample keeps tensors of {number} of {CALLS} calls"
        expect(number <= FEW, problem, why=HISTORY)
