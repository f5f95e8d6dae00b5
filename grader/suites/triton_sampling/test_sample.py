"""Task 12.5: one call for the whole batch."""

import math
from types import ModuleType
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from grader.kit import examples, expect_equal, task
from grader.kit.kernels import padded, sampling_batch
from grader.suites.triton_sampling.plugged import (
    SAME_NOISE,
    draw_tokens,
    expect_draws,
    random_logits,
)
from yaie.core.batch import PenaltyBatch

TASK = "12.5"
OFF = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
KINDS = [
    {},
    {"temperature": 0.0},
    {"temperature": 1.5, "top_p": 0.8},
    {"temperature": 0.7, "top_k": 8},
    {"min_p": 0.15},
    {"temperature": 1.2, "top_k": 9, "top_p": 0.8, "min_p": 0.03},
]


def mixed(kinds: list[dict[str, float]]) -> dict[str, Any]:
    """Columns of a batch whose rows are requests of these kinds."""
    return {name: [(OFF | kind)[name] for kind in kinds] for name in OFF}


@task(TASK)
def test_every_filter_in_one_batch(part: ModuleType) -> None:
    """Rows that want different things are drawn in one call."""
    batch = sampling_batch(len(KINDS), **mixed(KINDS), seeds=list(range(50, 50 + len(KINDS))))
    why = (
        "Penalties first, then temperature, top-k, top-p, min-p, each with the row's own parameter."
    )
    logits = padded(random_logits(len(KINDS), 300, scale=1.0))
    expect_draws(part, TASK, logits, batch, "the draws of six kinds of requests", why=why)


@task(TASK)
def test_a_request_draws_the_same_alone_and_in_a_batch(part: ModuleType) -> None:
    """Nothing of a row depends on the rows around it."""
    kinds, seeds = [KINDS[5], KINDS[2], KINDS[3]], [7, 8, 9]
    logits = random_logits(3, 200, scale=1.0)
    together, _ = draw_tokens(part, TASK, logits, sampling_batch(3, **mixed(kinds), seeds=seeds))
    for row, kind in enumerate(kinds):
        batch = sampling_batch(1, **mixed([kind]), seeds=[seeds[row]])
        alone, _ = draw_tokens(part, TASK, logits[row : row + 1], batch)
        expect_equal(alone[0], together[row], f"the draw of row {row}, alone", why=SAME_NOISE)


@task(TASK)
def test_penalties_come_first(part: ModuleType) -> None:
    """A penalised token is less likely before anything else is asked."""
    logits, counts = random_logits(4, 150), torch.zeros(4, 150)
    best = logits.argmax(dim=1)
    counts[torch.arange(4), best] = 2
    heats, top_p = [0.0, 1.0, 0.0, 1.0], [1.0, 1.0, 1.0, 1e-6]
    batch = sampling_batch(4, temperature=heats, top_k=[0, 1, 0, 0], top_p=top_p)
    batch.penalties = PenaltyBatch(
        presence=torch.tensor([9.0, 0.0, 0.0, 9.0]),
        frequency=torch.tensor([0.0, 9.0, 0.0, 0.0]),
        repetition=torch.tensor([1.0, 1.0, 9.0, 1.0]),
        output_counts=counts,
        prompt_mask=torch.zeros(4, 150, dtype=torch.bool),
    )
    why = (
        "Greedy rows, top-k and the rounds of top-p must all see the penalised logits: each row's "
        "favourite is no longer that."
    )
    expect_draws(part, TASK, logits, batch, "the draws of rows with a penalty", why=why)


@task(TASK)
def test_bad_rows_among_good_ones(part: ModuleType) -> None:
    """A row that is not finite gives -1, whatever it asks for."""
    logits = random_logits(4, 200)
    logits[0, 150], logits[2, 0], logits[3] = math.nan, math.inf, -math.inf
    kinds = [KINDS[5], KINDS[2], KINDS[3], KINDS[4]]
    batch = sampling_batch(4, **mixed(kinds), seeds=[1, 2, 3, 4])
    why = (
        "The engine ends a request whose token is -1; an endless loop or a token would harm others."
    )
    expect_draws(part, TASK, logits, batch, "the draws of three bad rows and a good one", why=why)


@task(TASK)
def test_no_rows_at_all(part: ModuleType) -> None:
    """An empty batch gives an empty tensor."""
    got, _ = draw_tokens(part, TASK, torch.empty(0, 50), sampling_batch(0))
    expect_equal(got, [], "the draws of no rows", why="A grid of no programs cannot be launched.")


@task(TASK)
def test_the_batch_stays(part: ModuleType) -> None:
    """The batch's tensors are read only: the engine uses them again."""
    batch = sampling_batch(2, seeds=[1, 2], top_k=5, top_p=0.9, min_p=0.01)
    names = ("temperature", "top_k", "top_p", "min_p", "seeds", "steps")
    before = {name: getattr(batch, name).tolist() for name in names}
    draw_tokens(part, TASK, random_logits(2, 100), batch)
    expect_equal(
        {name: getattr(batch, name).tolist() for name in names}, before, "the batch's tensors"
    )


@task(TASK)
@examples(5)
@given(st.lists(st.sampled_from(KINDS), min_size=1, max_size=4), st.integers(0, 999))
def test_any_batch(part: ModuleType, kinds: list[dict[str, float]], seed: int) -> None:
    """Any mixture of requests draws what lab 1 draws."""
    batch = sampling_batch(
        len(kinds), **mixed(kinds), seeds=[seed + 31 * i for i in range(len(kinds))]
    )
    logits = random_logits(len(kinds), 140, seed)
    expect_draws(part, TASK, logits, batch, "the draws of a mixed batch", why=SAME_NOISE)
