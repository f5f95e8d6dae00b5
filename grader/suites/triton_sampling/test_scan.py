"""Task 12.2: one pass for the maximum, the sum and the winner."""

import math
from types import ModuleType

import torch
from hypothesis import given
from hypothesis import strategies as st

from grader.kit import examples, expect, expect_equal, task
from grader.kit.kernels import padded, sampling_batch
from grader.suites.triton_sampling.calls import lead_of, theirs
from grader.suites.triton_sampling.plugged import (
    INF,
    SAME_NOISE,
    draw_tokens,
    expect_all_of,
    expect_draws,
    random_logits,
)
from grader.suites.triton_sampling.plugging import NO_TOKEN
from grader.suites.triton_sampling.probes import expect_functions

TASK = "12.2"
RESCALE = (
    "The maximum is known at the end only. When it grows, what was summed and what won so far is "
    "relative to the old one, and must be brought to the new one."
)


@task(TASK)
def test_plain_draws(part: ModuleType) -> None:
    """The largest of logit / temperature + noise is drawn."""
    batch = sampling_batch(4, temperature=[1.0, 0.5, 2.0, 1.0], seeds=[1, 2, 3, 4])
    what = "the draws of four rows of 100 tokens"
    expect_draws(part, TASK, random_logits(4, 100), batch, what, why=SAME_NOISE)


@task(TASK)
def test_greedy_rows(part: ModuleType) -> None:
    """A temperature of 0 takes the largest logit, the first of equals, beside rows that draw."""
    logits = torch.zeros(3, 300)
    logits[:, [40, 170, 299]] = 2.0
    batch = sampling_batch(3, temperature=[0.0, 1.0, 0.0])
    why = (
        "A greedy row has no noise and divides by nothing; torch.argmax takes the first of equals."
    )
    expect_draws(
        part, TASK, logits, batch, "the draws of two greedy rows and one that draws", why=why
    )


@task(TASK)
def test_lanes_see_several_tiles(part: ModuleType) -> None:
    """5,000 tokens are several tiles: in every lane the race goes on from one to the next."""
    logits = random_logits(8, 5000, scale=3.0)
    why = (
        "A lane has one token of each of several tiles. The one with the smallest time / weight leads, "
        "weights relative to one maximum: a token that is the new maximum has weight 1."
    )
    batch = sampling_batch(8, seeds=list(range(21, 29)))
    expect_draws(part, TASK, logits, batch, "the draws of rows of 5,000 tokens", why=why)


@task(TASK)
def test_the_maximum_grows_from_tile_to_tile(part: ModuleType) -> None:
    """Logits that rise over 5,000 tokens: every tile has a new maximum."""
    rising = torch.linspace(-30, 5, 5000)
    batch = sampling_batch(5, seeds=list(range(3, 8)), top_p=[1.0] + [0.2] * 4)
    expect_draws(part, TASK, rising.repeat(5, 1), batch, "the draws of rising logits", why=RESCALE)


@task(TASK)
def test_the_maximum_comes_first(part: ModuleType) -> None:
    """Logits that fall over 5,000 tokens: the winner may be in any tile all the same."""
    falling = torch.linspace(1, -1, 5000)
    batch = sampling_batch(5, seeds=list(range(5, 10)), top_p=[1.0] * 4 + [0.5])
    why = "A tile without a new maximum still takes part in the race, and in the sum."
    expect_draws(part, TASK, falling.repeat(5, 1), batch, "the draws of falling logits", why=why)


@task(TASK)
def test_lanes_past_the_vocabulary_never_win(part: ModuleType) -> None:
    """130 tokens, all of them at -1000: lanes that stand for no token must not win."""
    logits = torch.full((4, 130), -1000.0) + random_logits(4, 130, scale=1.0)
    batch = sampling_batch(4, temperature=[1.0, 1.0, 0.0, 4.0], top_p=[1.0, 0.9, 1.0, 1.0])
    why = (
        "What a masked load puts there takes part in maximum, sum and race: it must be -inf, not 0."
    )
    expect_draws(part, TASK, logits, batch, "the draws of 130 tokens around -1000", why=why)


@task(TASK)
def test_tiny_temperatures(part: ModuleType) -> None:
    """However small the temperature, nothing overflows, and the largest logit is drawn."""
    logits = random_logits(3, 200, scale=1000.0)
    batch = sampling_batch(3, temperature=[1e-6, 1e-30, 1e-44])
    why = (
        "logit / temperature overflows; (logit - maximum) / temperature is 0 for the largest and at "
        "worst -inf for the others. And 1 / 1e-44 is more than float32 holds."
    )
    expect_draws(part, TASK, logits, batch, "the draws at temperatures 1e-6, 1e-30, 1e-44", why=why)


@task(TASK)
def test_rows_that_are_not_finite(part: ModuleType) -> None:
    """NaN, +inf or nothing but -inf in a row gives -1, and disturbs no other row."""
    logits = random_logits(5, 300)
    logits[0, 290], logits[1, 3], logits[2] = math.nan, INF, -INF
    logits[3, :299] = -INF
    batch = sampling_batch(5, seeds=[1, 2, 3, 4, 5])
    why = "A NaN loses every comparison, so no maximum shows it; a sum of exponentials does."
    what = "the draws of rows with a NaN, a +inf, only -inf, one possible token, and a good one"
    expect_draws(part, TASK, logits, batch, what, why=why)
    batch = sampling_batch(5, temperature=0.0)
    expect_draws(part, TASK, logits, batch, f"{what}, greedy", why=why)


@task(TASK)
def test_one_pass_is_enough(part: ModuleType) -> None:
    """For a row without filters every logit is read once."""
    logits = random_logits(1, 5000)
    _, seen = draw_tokens(part, TASK, logits, sampling_batch(1))
    read, once = seen.loads(logits), logits.numel()
    why = (
        "A softmax needs the maximum first and then the sum; an online one, and a race, need one pass. "
        "(The winner's own logit may be looked up again.)"
    )
    expect(read <= once + 100, f"{read} logits read of {once}", why=why)


@task(TASK)
def test_rows_may_lie_apart(part: ModuleType) -> None:
    """Logits may be a slice: rows with other numbers between them."""
    logits = padded(random_logits(3, 200))
    why = "A row begins at its number times the stride, not times the vocabulary."
    what = "the draws of rows with NaN between them"
    expect_draws(part, TASK, logits, sampling_batch(3), what, why=why)


@task(TASK)
def test_every_token_has_its_chance(part: ModuleType) -> None:
    """Of four equal logits each is drawn by some of 10 requests; a token at -inf by none."""
    row = torch.tensor([[0.0, 0.0, -INF, 0.0, 0.0]])
    what = "the tokens drawn from (0, 0, -inf, 0, 0)"
    why = "exp(-inf) is 0: such a token has no chance."
    expect_all_of(part, TASK, row, {0, 1, 3, 4}, what, why=why, requests=10)


@task(TASK)
def test_the_first_pass_reports_the_largest_of_each_chunk(part: ModuleType) -> None:
    """Later passes rely on the maxima of the chunks: a top-k finds its tokens wherever they are."""
    logits = random_logits(1, 5000, seed=8)
    batch = sampling_batch(1, top_k=[40], top_p=[0.9])
    why = "A chunk whose maximum is too small is never read again."
    expect_draws(part, TASK, logits, batch, "the draw of top_k = 40, top_p = 0.9", why=why)


@task(TASK)
def test_of_equals_the_leader_stays(part: ModuleType) -> None:
    """A token that arrives together with a lane's leader does not take the lead, nor one of weight 0."""
    nobody = torch.zeros(4), torch.ones(4), torch.full((4,), NO_TOKEN, dtype=torch.int32)
    with theirs(part, TASK) as are_there:
        if not are_there:
            return  # another design: its draws are graded
        weights, times, tokens = lead_of([1.0, 0.0, 1.0, 0.5], [7, 7, 7, 7], nobody)
        first = tokens.tolist()
        # Lane 0: the same arrival. Lane 2: an earlier one. Lane 3: a later one.
        lead = weights, times, torch.tensor([3, NO_TOKEN, 3, 3], dtype=torch.int32)
        new_weights, _, after = lead_of([1.0, 0.0, 2.0, 0.25], [7, 7, 7, 7], lead)
    why = "Earlier is time * lead_weight < lead_time * weight: at equal products the lower token stays."
    what = "the leaders of lanes without one, after token 7 of weights 1, 0, 1, 0.5"
    expect_equal(first, [7, NO_TOKEN, 7, 7], what, why="Weight 0 may not win.")
    what = "the leaders of lanes led by token 3, nobody, 3 and 3, after another token 7 of each"
    expect_equal(after.tolist(), [3, NO_TOKEN, 7, 3], what, why=why)
    expect_equal(
        new_weights.tolist(), [1.0, 0.0, 2.0, 0.5], "the weights of these leaders", why=why
    )


@task(TASK)
@examples(5)
@given(
    st.lists(st.sampled_from([0.0, 0.3, 1.0, 2.5]), min_size=1, max_size=3),
    st.integers(1, 400),
    st.integers(0, 999),
)
def test_any_plain_draw(part: ModuleType, heats: list[float], vocab: int, seed: int) -> None:
    """Any rows without filters draw what lab 1 draws."""
    seeds = [seed + 1000 * row for row in range(len(heats))]
    batch = sampling_batch(len(heats), temperature=heats, seeds=seeds)
    logits = random_logits(len(heats), vocab, seed)
    what = f"the draws at temperatures {heats}"
    expect_draws(part, TASK, logits, batch, what, why=SAME_NOISE)
    expect_equal(logits.tolist(), random_logits(len(heats), vocab, seed).tolist(), "the logits")


@task(TASK)
def test_the_functions_by_themselves(part: ModuleType) -> None:
    """absorb, take_lead and finish_race give what they must, for tiny weights too."""
    expect_functions(part, TASK)
