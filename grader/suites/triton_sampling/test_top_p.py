"""Task 12.3: top-p by rejection."""

import math
from types import ModuleType

import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from grader.kit import examples, expect, task
from grader.kit.kernels import sampling_batch
from grader.suites.triton_sampling.plugged import (
    SAME_NOISE,
    draw_tokens,
    expect_all_of,
    expect_draws,
    logs,
    random_logits,
)
from grader.suites.triton_sampling.plugging import theirs_of
from grader.suites.triton_sampling.probes import expect_functions

TASK = "12.3"
REJECTION = (
    "A candidate is kept if the tokens above it have less than p of the whole; otherwise the next one "
    "is the winner among those above it."
)


@task(TASK)
def test_the_token_that_crosses_p_is_kept(part: ModuleType) -> None:
    """Probabilities 0.5, 0.3, 0.15, 0.05 and p = 0.6: the first two are drawn, and both are."""
    why = f"Above the second there is 0.5, less than 0.6: it stays. {REJECTION}"
    what = "the tokens drawn at top_p = 0.6"
    expect_all_of(part, TASK, logs(0.15, 0.5, 0.05, 0.3), {1, 3}, what, why=why, top_p=0.6)


@task(TASK)
def test_a_share_of_exactly_p_is_enough(part: ModuleType) -> None:
    """Weights 1, 1/2, 1/2 and p = 0.5: above the halves there is p of the whole, and they go."""
    if theirs_of(part, TASK) is None:
        return  # another design's sums round otherwise
    why = "Kept is what has less than p above it. mass >= p * total rejects, not mass > p * total."
    row, heat = (
        torch.tensor([[-1.0, 0.0, -1.0]]),
        1 / math.log(2),
    )  # weights are powers of 2 exactly
    what = "the tokens drawn of weights 1/2, 1, 1/2 at top_p = 0.5"
    expect_all_of(part, TASK, row, {1}, what, why=why, top_p=0.5, temperature=heat)


@task(TASK)
def test_the_noise_stays_the_same(part: ModuleType) -> None:
    """A rejected candidate is followed by the winner among the rest, on the same noise."""
    logits = random_logits(6, 60, scale=1.5)
    batch = sampling_batch(6, top_p=0.5, seeds=list(range(6)))
    why = (
        f"{SAME_NOISE} New noise for each round would make the draw depend on the tokens that top-p "
        "drops, and no longer be lab 1's."
    )
    expect_draws(part, TASK, logits, batch, "six draws at top_p = 0.5", why=why)


@task(TASK)
def test_temperature_comes_first(part: ModuleType) -> None:
    """p is a share of the probabilities after temperature."""
    batch = sampling_batch(4, top_p=0.8, temperature=[0.4, 0.4, 3.0, 3.0], seeds=[1, 2, 3, 4])
    logits = random_logits(1, 50).repeat(4, 1)
    why = "A high temperature makes probabilities alike, and 0.8 of them takes more tokens."
    expect_draws(part, TASK, logits, batch, "draws at top_p = 0.8, cold and hot", why=why)


@task(TASK)
def test_the_most_likely_token_always_stays(part: ModuleType) -> None:
    """However small p is, the most likely token can be drawn, and it alone."""
    why = "Above it there is nothing: with nobody left to ask, the candidate is the draw."
    batch = sampling_batch(5, top_p=[0.4, 0.4, 1e-9, 0.0, 0.0], seeds=[1, 2, 3, 4, 5])
    logits = logs(0.3, 0.5, 0.2).repeat(5, 1)
    what = "draws at top_p = 0.4, 0.4, 1e-9, 0 and 0"
    expect_draws(part, TASK, logits, batch, what, why=why)


@task(TASK)
def test_p_of_1_keeps_all(part: ModuleType) -> None:
    """p = 1 is off: the least likely token may be drawn."""
    logits = random_logits(3, 400, scale=0.1)
    batch = sampling_batch(3, top_p=[1.0, 1.0, 0.5], seeds=[2, 3, 4])
    why = "Sums in float32 may reach 1 before the last token. And every row has a p of its own."
    expect_draws(part, TASK, logits, batch, "the draws at top_p = 1, 1 and 0.5", why=why)


@task(TASK)
def test_p_of_1_weighs_nothing(part: ModuleType) -> None:
    """Without top-p a winner that min-p lets race is the draw: two passes, and no third to weigh it."""
    logits = random_logits(6, 600, scale=1.0)
    batch = sampling_batch(6, min_p=0.5, seeds=list(range(6)))
    _, seen = draw_tokens(part, TASK, logits, batch)
    why = (
        "The first pass does not know who may win, so a second one races. At p = 1 its winner is not "
        "judged: a row is open after a race only if p < 1."
    )
    read = seen.loads(logits)
    expect(read <= 2 * logits.numel() + 20, f"{read} logits read of {logits.numel()}", why=why)


@task(TASK)
def test_the_share_is_of_what_top_k_left(part: ModuleType) -> None:
    """Of 0.4, 0.3, 0.2, 0.1 top_k = 2 leaves 0.57 and 0.43, and top_p = 0.5 of these the first."""
    why = (
        "Top-k comes first: p is a share of the sum over the tokens above its bound, 0.7, not over all. "
        "Against the whole, 0.4 would be less than 0.5, and the second token would stay."
    )
    what = "the tokens drawn at top_k = 2, top_p = 0.5"
    row = logs(0.2, 0.4, 0.1, 0.3)
    expect_all_of(part, TASK, row, {1}, what, why=why, top_k=2, top_p=0.5)


@task(TASK)
def test_min_p_comes_after_the_share(part: ModuleType) -> None:
    """Of 0.45, 0.25, 0.13, 0.12, 0.05 top_k = 4, top_p = 0.55 and min_p = 0.4 leave the first two."""
    why = (
        "Min-p comes last: what it drops races no more, but still counts in the sum that p is a share "
        "of. Above the second there is 0.45 of the 0.95 that top-k left, 0.47 and less than 0.55. "
        "Against 0.70, the sum without what min-p drops, it would be 0.64, and the second would go."
    )
    row = logs(0.13, 0.45, 0.05, 0.25, 0.12)
    what = "the tokens drawn at top_k = 4, top_p = 0.55, min_p = 0.4"
    expect_all_of(part, TASK, row, {1, 3}, what, why=why, top_k=4, top_p=0.55, min_p=0.4)


@task(TASK)
def test_equals_where_the_set_ends(part: ModuleType) -> None:
    """Of 0.2, 0.4, 0.2, 0.2 top_p = 0.5 keeps the 0.4 and all of the equals, or one as lab 1 does."""
    batch = sampling_batch(12, top_p=0.5, seeds=list(range(3, 15)))
    got, _ = draw_tokens(part, TASK, logs(0.2, 0.4, 0.2, 0.2).repeat(12, 1), batch)
    drawn = sorted(set(got))
    why = (
        f"{REJECTION} Equals are not above each other, so all three stay; a sort keeps one of them. "
        "To drop all three leaves 0.4, which does not reach p."
    )
    is_right = 1 in drawn and len(drawn) in (2, 4)
    expect(is_right, f"12 draws at top_p = 0.5 of 0.2, 0.4, 0.2, 0.2 give only {drawn}", why=why)


@task(TASK)
def test_many_rounds(part: ModuleType) -> None:
    """Thousands of tokens of about the same chance and a small p: most candidates are rejected."""
    logits = random_logits(3, 2500, scale=0.05)
    batch = sampling_batch(3, top_p=0.02, seeds=[11, 12, 13])
    why = (
        f"{REJECTION} The bound only rises, so that this ends. A row of 2,500 tokens has several "
        "programs in a round, and the chunks of each begin at its own first token."
    )
    expect_draws(part, TASK, logits, batch, "the draws at top_p = 0.02 of flat logits", why=why)


@task(TASK)
def test_chunks_without_a_say_are_not_read(part: ModuleType) -> None:
    """Where one token has nearly all of the mass, the second pass reads hardly anything."""
    logits = random_logits(1, 5000, scale=1.0)
    logits[0, 2321] = 30.0
    _, seen = draw_tokens(part, TASK, logits, sampling_batch(1, top_p=0.9))
    why = (
        "The first pass knows the largest logit of every chunk: one that is not above the candidate's "
        "logit holds no mass above it, and no better candidate."
    )
    read = seen.loads(logits)
    expect(read <= 5000 * 1.3, f"{read} logits read of 5000", why=why)


@task(TASK)
def test_few_passes(part: ModuleType) -> None:
    """At p = 0.9 a draw takes about two passes over the row, whatever the logits."""
    logits = random_logits(3, 3000, scale=0.5)
    _, seen = draw_tokens(part, TASK, logits, sampling_batch(3, top_p=0.9, seeds=[1, 2, 3]))
    read = seen.loads(logits) / logits.numel()
    why = (
        "A candidate is rejected with a chance of about 0.1, and one pass both weighs a candidate and "
        "finds the next: two passes for most rows, three for some."
    )
    expect(read <= 3.0, f"{read:.2f} passes over the logits for 3 rows", why=why)


@task(TASK)
def test_a_rejected_candidate_raises_the_bound(part: ModuleType) -> None:
    """The round after a rejection reads only what is above the candidate that was rejected."""
    logits = random_logits(2, 3000, scale=2.0)
    batch = sampling_batch(2, top_p=0.3, seeds=[0, 1])
    seen = expect_draws(part, TASK, logits, batch, "two draws at top_p = 0.3", why=REJECTION)
    read = seen.loads(logits) / logits.numel()
    why = (
        "Both first candidates are rejected, and nothing at or below them can be drawn: `low` becomes "
        "the candidate's logit. If it stays where it was, the next round reads the whole row again."
    )
    expect(read <= 3.0, f"{read:.2f} passes over the logits for 2 rows", why=why)


@task(TASK)
def test_what_min_p_drops_does_not_race(part: ModuleType) -> None:
    """At top_p = 1 or nearly, min_p alone decides who races; 1 leaves the most likely token."""
    why = (
        "An exponent of at least `least` may win, one of just `least` too; others race at weight 0."
    )
    batch = sampling_batch(
        12, top_p=[1.0, 0.97] * 6, min_p=[0.4] * 8 + [1.0] * 4, seeds=list(range(3, 15))
    )
    logits = logs(0.13, 0.45, 0.05, 0.25, 0.12).repeat(12, 1)
    what = "draws at min_p = 0.4 and 1, top_p = 1 and 0.97 in turn"
    expect_draws(part, TASK, logits, batch, what, why=why)


def clear_cut(logits: torch.Tensor, heat: float, p: float) -> bool:
    """Whether no sum of probabilities is so near to p that rounding decides."""
    sums = (
        (logits.double() / heat).sort(dim=-1, descending=True).values.softmax(dim=-1).cumsum(dim=-1)
    )
    return bool(((sums - p).abs() > 1e-5).all())


@task(TASK)
@examples(5)
@given(
    st.sampled_from([0.05, 0.3, 0.7, 0.95]),
    st.sampled_from([0.5, 1.0, 2.0]),
    st.integers(1, 300),
    st.integers(0, 999),
)
def test_any_top_p(part: ModuleType, p: float, heat: float, vocab: int, seed: int) -> None:
    """Any rows draw what a sort would let them draw."""
    logits = random_logits(2, vocab, seed, scale=2.0)
    assume(clear_cut(logits, heat, p))
    batch = sampling_batch(2, top_p=p, temperature=heat, seeds=[seed, seed + 1])
    what = f"draws at top_p = {p}, temperature {heat}"
    expect_draws(part, TASK, logits, batch, what, why=REJECTION)


@task(TASK)
def test_the_functions_by_themselves(part: ModuleType) -> None:
    """race_above and judge give what they must, over many tiles and at any p."""
    expect_functions(part, TASK)
