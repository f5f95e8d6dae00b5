"""Task 12.5 beyond one call: batches of other sizes and logits, draws that stay, nothing left behind."""

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from grader.kit import start_script, task
from grader.kit.kernels import sampling_batch
from grader.kit.standing import expect_results_stand
from grader.kit.storage import expect_nothing_is_kept
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


@task(TASK)
def test_batches_of_other_sizes(part: ModuleType) -> None:
    """A call draws for its own rows and logits, after calls with fewer and with others."""
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
def test_draws_of_many_calls(part: ModuleType) -> None:
    """The tokens of a call are its own, and nothing is left behind."""
    empty = sampling_batch(0)
    with sampler_of(part, TASK) as sampler:

        def draw(number: int) -> Any:
            logits = random_logits(2, 40, seed=number)
            return sampler.sample(logits, sampling_batch(2, temperature=0.0))

        expect_results_stand([lambda n=n: draw(n) for n in (1, 2, 3)], "sample")  # type: ignore[misc]
        nothing: Tensor = torch.empty(0, 50)
        expect_nothing_is_kept({"sample": lambda: sampler.sample(nothing, empty)})
