"""Task 12.4: top-k as a bound, min-p as a least exponent."""

from types import ModuleType

import torch
from hypothesis import given
from hypothesis import strategies as st

from grader.kit import examples, expect, expect_equal, task
from grader.kit.kernels import sampling_batch
from grader.kit.siblings import telling
from grader.suites.triton_sampling.plugged import (
    INF,
    bounds_of,
    draw_tokens,
    expect_all_of,
    expect_draws,
    logs,
    random_logits,
    search_of,
)
from grader.suites.triton_sampling.probes import expect_functions, why_of

TASK = "12.4"
BOUND = (
    "The bound lies below the k-th largest logit and not below the next smaller one: exactly the k "
    "largest, and ties with the last of them, are above it."
)


def expect_kept(
    part: ModuleType, row: torch.Tensor, k: int, tokens: set[int], of: str, why: str
) -> None:
    """Just these tokens lie above the bound for top_k = k; or, in another design, are drawn."""
    bounds = bounds_of(part, row, sampling_batch(1, top_k=k))
    if bounds is None:
        what = f"the tokens drawn at top_k = {k} of {of}"
        expect_all_of(part, TASK, row, tokens, what, why=why, requests=10, top_k=k, temperature=2.0)
        return
    above = (row[0] > bounds[0]).nonzero().flatten().tolist()
    with telling(lambda: why_of(part, TASK)):
        what = f"the tokens above the bound for top_k = {k} of {of}"
        expect_equal(above, sorted(tokens), what, why=why)


@task(TASK)
def test_min_p_is_a_share_of_the_largest(part: ModuleType) -> None:
    """Of 0.5, 0.3, 0.15, 0.05 min_p = 0.2 leaves what has at least 0.1."""
    row = logs(0.15, 0.5, 0.05, 0.3)
    why = (
        "p_i >= min_p * p_max is (logit_i - maximum) / temperature >= log(min_p): relative to the most "
        "likely token, and after temperature."
    )
    expect_all_of(part, TASK, row, {0, 1, 3}, "the tokens drawn at min_p = 0.2", why=why, min_p=0.2)
    what = "the tokens drawn at min_p = 0.45, cold"
    expect_all_of(part, TASK, row, {1}, what, why=why, min_p=0.45, temperature=0.5)


@task(TASK)
def test_min_p_at_its_ends(part: ModuleType) -> None:
    """min_p = 0 is off, min_p = 1 leaves the most likely token."""
    logits = random_logits(4, 100, scale=0.5)
    batch = sampling_batch(4, min_p=[0.0, 1.0, 0.0, 1.0], seeds=[1, 2, 3, 4])
    why = "log(0) is -inf, which keeps all; log(1) is 0, the exponent of the most likely token."
    expect_draws(part, TASK, logits, batch, "the draws at min_p = 0, 1, 0, 1", why=why)


@task(TASK)
def test_top_k_keeps_the_k_largest(part: ModuleType) -> None:
    """Of logits 0.25, 1, 0.5, 0.75 top_k = 2 leaves the tokens with 1 and 0.75."""
    row = torch.tensor([[1.0, 4.0, 2.0, 3.0]]) / 4
    for k, tokens in ((1, {1}), (2, {1, 3}), (3, {1, 2, 3})):
        why = f"The k-th largest is one of the k. {BOUND}"
        expect_kept(part, row, k, tokens, "0.25, 1, 0.5, 0.75", why)


@task(TASK)
def test_top_k_keeps_ties_with_the_last(part: ModuleType) -> None:
    """Of 3, 2, 2, 1, 2 top_k = 2 leaves all but the 1."""
    row = torch.tensor([[3.0, 2.0, 2.0, -9.0, 2.0]])
    why = "Which of equals goes would be arbitrary, so ties with the k-th largest all stay."
    expect_kept(part, row, 2, {0, 1, 2, 4}, "3, 2, 2, -9, 2", why)


@task(TASK)
def test_each_row_has_its_k(part: ModuleType) -> None:
    """k is per row; 0, and the vocabulary's size or more, keep all."""
    logits = random_logits(5, 200, scale=0.5)
    batch = sampling_batch(5, top_k=[0, 3, 200, 10**12, 1], seeds=[1, 2, 3, 4, 5])
    why = "A row without top-k has no bound: -inf, which every possible token exceeds."
    expect_draws(part, TASK, logits, batch, "the draws at top_k = 0, 3, 200, 10**12, 1", why=why)


@task(TASK)
def test_signs_and_zeros(part: ModuleType) -> None:
    """Negative logits are in order too, and -0 is 0."""
    why = (
        "The bits of a negative float32, read as a whole number, run backwards; and -0.0 and 0.0 are "
        "equal numbers with unlike bits."
    )
    row = torch.tensor([[-3.0, -1.0, -2.0, -4.0]]) / 4
    expect_kept(part, row, 2, {1, 2}, "negative logits", why)
    row = torch.tensor([[0.0, -0.0, -1e-30, -1.0]])
    expect_kept(part, row, 1, {0, 1}, "0, -0, -1e-30, -1", why)


@task(TASK)
def test_neighbours_among_floats(part: ModuleType) -> None:
    """Of 4, 1, the float32 just below 1, and -3 the bound for top_k = 2 lies below the first two."""
    row = torch.tensor([[1 - 2.0**-24, 4.0, -3.0, 1.0]])
    why = (
        "The bisection ends at the last bit. The largest logit that misses a pivot may be the k-th "
        "largest: it stays within the interval, so the end of that lies above it, not on it."
    )
    bounds = bounds_of(part, row, sampling_batch(1, top_k=2))
    if bounds is None:
        return  # another design may subtract the maximum first, which rounds the two to one
    above = (row[0] > bounds[0]).nonzero().flatten().tolist()
    expect_equal(above, [1, 3], "the tokens above the bound for top_k = 2", why=why)


@task(TASK)
def test_fewer_tokens_than_k(part: ModuleType) -> None:
    """A row with fewer than k possible tokens keeps those, and no other."""
    logits = torch.full((2, 300), -INF)
    logits[:, [7, 260]] = torch.tensor([1.0, 1.5])
    batch = sampling_batch(2, top_k=[3, 3], top_p=[1.0, 0.9])
    why = "The k-th largest is -inf: everything possible lies above it."
    expect_draws(
        part, TASK, logits, batch, "the draws at top_k = 3 of two possible tokens", why=why
    )


@task(TASK)
def test_more_than_the_chunks(part: ModuleType) -> None:
    """k may be larger than the number of chunks, and the k largest may all lie in one chunk."""
    logits = random_logits(3, 700, scale=0.3)
    logits[1, :128] += 5.0
    batch = sampling_batch(3, top_k=[100, 40, 6], top_p=[0.9, 0.9, 0.5], seeds=[4, 5, 6])
    why = "Chunk maxima bound the k-th largest logit from below; only the tokens say where it is."
    expect_draws(
        part, TASK, logits, batch, "the draws at top_k = 100, 40, 6 of 700 tokens", why=why
    )


@task(TASK)
def test_few_chunks_are_read(part: ModuleType) -> None:
    """For a small k of many tokens the search reads a few chunks again, not the row."""
    logits = random_logits(1, 5000)
    _, seen = draw_tokens(part, TASK, logits, sampling_batch(1, top_k=3, top_p=0.9))
    why = (
        "If k chunks reach a number, so do k tokens: the k-th largest chunk maximum is a first bound, "
        "and chunks below it need not be counted. A bisection over the whole row reads it 20 times."
    )
    read = seen.loads(logits)
    expect(read <= 5000 * 3, f"{read} logits read of 5000", why=why)


@task(TASK)
def test_the_search_ends_where_it_has_k(part: ModuleType) -> None:
    """Of 3 logits above 0 and 97 below the bound for top_k = 3 is found in two counts."""
    logits = -4 - torch.rand(1, 100, generator=torch.Generator().manual_seed(0))
    logits[0, [5, 50, 95]] = torch.tensor([6.0, 4.0, 5.0])
    _, seen = search_of(part, logits, sampling_batch(1, top_k=3))
    why = (
        "The first count finds the least logit, the second that exactly k reach 0. With just those "
        "above it the bound is known: missed becomes reached + 1, and every further count is in vain."
    )
    read = seen.loads(logits)
    expect(read <= 2 * 100, f"{read} logits read of 100 in the search", why=why)


@task(TASK)
def test_exactly_the_k_largest(part: ModuleType) -> None:
    """Of 12 rows of 40 logits, some equal, just the k largest lie above the bound."""
    logits = (random_logits(12, 40, seed=5) * 2).round() / 2
    logits[6:] = random_logits(6, 40, seed=6)
    top_k = [1, 2, 3, 5, 8, 13, 1, 2, 3, 21, 34, 39]
    bounds = bounds_of(part, logits, sampling_batch(12, top_k=top_k))
    if bounds is None:
        return  # another design: its draws are graded
    for row, k, bound in zip(logits, top_k, bounds.tolist(), strict=True):
        right = int((row >= row.topk(k).values[-1]).sum())
        what = f"how many logits lie above the bound for top_k = {k}"
        expect_equal(
            int((row > bound).sum()), right, what, why=f"Just the k largest, and ties. {BOUND}"
        )


@task(TASK)
@examples(6)
@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=2), st.integers(1, 300), st.integers(0, 999)
)
def test_any_top_k(part: ModuleType, top_k: list[int], vocab: int, seed: int) -> None:
    """Any rows draw from their k largest, ties included."""
    logits = (random_logits(len(top_k), vocab, seed) * 2).round() / 2
    seeds = [seed + row for row in range(len(top_k))]
    batch = sampling_batch(len(top_k), top_k=top_k, seeds=seeds)
    expect_draws(part, TASK, logits, batch, f"the draws at top_k = {top_k}", why=BOUND)


@task(TASK)
def test_the_functions_by_themselves(part: ModuleType) -> None:
    """least_exponent and narrow give what they must, for tiny shares too."""
    expect_functions(part, TASK)
