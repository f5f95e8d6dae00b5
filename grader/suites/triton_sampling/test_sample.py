"""Task 12.5: one call for the whole batch."""

import math
from dataclasses import fields, replace
from types import ModuleType
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from grader.kit import examples, expect, expect_equal, task
from grader.kit.kernels import padded, sampling_batch
from grader.kit.siblings import telling
from grader.kit.triton_watch import watching
from grader.suites.triton_sampling.host import on_the_device
from grader.suites.triton_sampling.plugged import (
    SAME_NOISE,
    draw_tokens,
    expect_draws,
    random_logits,
)
from grader.suites.triton_sampling.plugging import sampler_of
from yaie.core.batch import PenaltyBatch, SamplingBatch

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

GREEDY = (
    "argmax finds a token in any row: NaN, +inf and nothing but -inf must give -1 in a greedy batch "
    "too, and one token at -inf is no harm."
)


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
    what = "the draws of rows with a penalty"
    with telling(lambda: UNREAD if are_without(part, logits, batch) else ""):
        expect_draws(part, TASK, logits.clone(), batch, what, why=why)


UNREAD = "All rows draw what they draw without penalties: batch.penalties changes nothing."


def are_without(part: ModuleType, logits: Tensor, batch: SamplingBatch) -> bool:
    """Whether the part draws as if the batch had no penalties."""
    plain = replace(batch, penalties=None)
    right, _ = draw_tokens(part, TASK, logits.clone(), plain)
    return draw_tokens(part, TASK, logits.clone(), batch)[0] == right


@task(TASK)
def test_penalties_are_applied_once(part: ModuleType) -> None:
    """In a greedy batch, and whichever of the penalties the rows use."""
    logits = torch.zeros(2, 40)
    logits[:, [8, 30]] = torch.tensor([3.0, 2.0])
    said = torch.zeros(2, 40)
    said[:, 8] = 1
    off = torch.zeros(2)
    batch = sampling_batch(2, temperature=0.0)
    what = "the draws of logits 3 and 2, the first with a"
    none = torch.zeros(2, 40, dtype=torch.bool)
    batch.penalties = PenaltyBatch(torch.tensor([0.75, 1.5]), off, off + 1, said, none)
    why = "Subtracted once from the 3, 0.75 leaves 2.25, which is still the largest, and 1.5 leaves 1.5."
    told = f"{what} presence penalty of 0.75 and of 1.5"
    with telling(lambda: of_penalties(part, logits, batch, torch.tensor([0.75, 1.5]))):
        expect_draws(part, TASK, logits.clone(), batch, told, why=why)
    batch.penalties = PenaltyBatch(off, off, torch.tensor([1.25, 2.0]), said * 0, said > 0)
    why = "A repetition penalty divides, and is about tokens of the prompt too, before one is generated."
    told = f"{what} repetition penalty of 1.25 and of 2"
    with telling(lambda: UNREAD if are_without(part, logits, batch) else ""):
        expect_draws(part, TASK, logits.clone(), batch, told, why=why)


def of_penalties(part: ModuleType, logits: Tensor, batch: SamplingBatch, presence: Tensor) -> str:
    """Which other number of times the penalties of greedy rows are applied."""
    if are_without(part, logits, batch):
        return f"{UNREAD} Every row is greedy here: penalties change these, too."
    said = batch.penalties.output_counts if batch.penalties is not None else logits
    twice = (logits - 2 * presence[:, None] * said).argmax(1).tolist()
    is_twice = draw_tokens(part, TASK, logits.clone(), batch)[0] == twice
    return "Both rows draw what they draw with penalties subtracted twice." if is_twice else ""


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
    logits[1, 7] = -math.inf
    for rows in (4, 1):
        batch = sampling_batch(rows, temperature=0.0)
        what = f"the draws of bad and good rows, {rows} in a batch, all greedy"
        expect_draws(part, TASK, logits[:rows], batch, what, why=GREEDY)


@task(TASK)
def test_every_digit_of_a_logit_counts(part: ModuleType) -> None:
    """Of two logits that differ in their last bit the larger one is drawn."""
    logits = torch.zeros(2, 60)
    logits[:, [20, 50]] = torch.tensor([1.0, 1.0 + 2.0**-23])
    batch = sampling_batch(2, temperature=[0.0, 1e-9])
    why = "Logits are float32. Rounded to fewer bits they tie, and the first of them is taken."
    expect_draws(part, TASK, logits, batch, "the draws of logits 1 and 1 + 2**-23", why=why)


@task(TASK)
def test_no_rows_at_all(part: ModuleType) -> None:
    """An empty batch gives an empty tensor."""
    got, _ = draw_tokens(part, TASK, torch.empty(0, 50), sampling_batch(0))
    expect_equal(got, [], "the draws of no rows", why="A grid of no programs cannot be launched.")


@task(TASK)
def test_the_batch_stays(part: ModuleType) -> None:
    """The batch's tensors are read only: the engine uses them again."""
    batch = sampling_batch(2, seeds=[1, 2], top_k=5, top_p=0.9, min_p=0.01)
    batch.penalties = penalties = PenaltyBatch(
        presence=torch.tensor([0.5, 0.0]),
        frequency=torch.tensor([0.0, 0.5]),
        repetition=torch.tensor([1.0, 1.5]),
        output_counts=torch.arange(200.0).view(2, 100) % 5,
        prompt_mask=torch.arange(200).view(2, 100) % 7 == 0,
    )
    before = tensors_of(batch) | tensors_of(penalties)
    draw_tokens(part, TASK, random_logits(2, 100), batch)
    expect(batch.penalties is penalties, "batch.penalties is another object after the call")
    after = tensors_of(batch) | tensors_of(penalties)
    expect_equal(after, before, "the batch's tensors")


def tensors_of(batch: SamplingBatch | PenaltyBatch) -> dict[str, Any]:
    """As lists, by name."""
    found = {one.name: getattr(batch, one.name) for one in fields(batch)}
    return {name: x.tolist() for name, x in found.items() if isinstance(x, Tensor)}


@task(TASK)
def test_nothing_waits_for_the_device(part: ModuleType) -> None:
    """The host reads no tensor, and makes none on another device: the call fits in a CUDA graph."""
    logits = random_logits(2, 50)
    half = torch.tensor([0.5, 0.0])
    for top_k in (0, 3):
        batch = sampling_batch(2, top_k=top_k)
        batch.penalties = PenaltyBatch(
            half,
            half,
            half + 1,
            torch.zeros(2, 50),
            torch.zeros(2, 50, dtype=torch.bool),
        )
        with sampler_of(part, TASK) as sampler, watching(), on_the_device(part):
            sampler.sample(logits.clone(), batch)
    with sampler_of(part, TASK) as sampler, on_the_device(part):
        sampler.sample(logits[:0], sampling_batch(0))


@task(TASK)
def test_passes_that_no_row_needs_are_skipped(part: ModuleType) -> None:
    """One pass for all rows, none of them twice, and none for a top-k that no row has."""
    found = {}
    for rows in (1, 3):
        batch = sampling_batch(rows)
        _, found[rows] = draw_tokens(part, TASK, random_logits(rows, 300), batch)
    kernels = found[3].kernels
    why = "Every launch is about all rows: the grid counts them."
    what = "how many kernels are launched for 3 rows, as many as for 1 row"
    expect_equal(len(kernels), len(found[1].kernels), what, why=why)
    why = "batch.any_top_k says whether a row has a top-k. A launch that finds nothing to do costs time."
    expect("bound_kernel" not in kernels, "bounds are searched though no row has a top-k", why=why)
    _, seen = draw_tokens(part, TASK, random_logits(2, 300), sampling_batch(2, top_k=3))
    scans = seen.kernels.count("scan_kernel")
    why = "The first pass reads all logits, and what it finds serves all later ones."
    expect(scans <= 1, f"the first pass is made {scans} times in a call with top_k = 3", why=why)


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
