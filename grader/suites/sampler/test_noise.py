"""Task 1.6: noise that follows the Gumbel distribution and depends on seed, step and token alone."""

import math
from types import ModuleType
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from grader.kit import (
    examples,
    expect,
    expect_close,
    expect_equal,
    start_script,
    task,
    watch,
)
from grader.kit.session import SESSION
from grader.suites.sampler.rows import (
    correlation,
    expect_on_its_device,
    gumbel_chance,
    of_the_seed,
)

SURELY_NOT = 1e-9
"""Right noise is this unlucky once in a thousand million gradings."""

EXTREME_STEPS = (4139706745, 4058244097)
"""Where, for seed 1 and token 0, the given hash is 0 and 2**32 - 1."""

NO_STATE = (
    "Noise is a function of seed, step and token: a request must get the same tokens alone, in a "
    "batch, in another row, and again after a preemption."
)


def noise_of(part: ModuleType, seeds: list[int], steps: list[int], vocab: int) -> Any:
    """One call, written down; checks shape and dtype."""
    noise = watch(part.noise, "noise")
    got = noise.gumbel_noise(torch.tensor(seeds), torch.tensor(steps), vocab)
    expect(isinstance(got, Tensor), f"gumbel_noise gives {type(got).__name__} instead of a tensor")
    expect_equal(list(got.shape), [len(seeds), vocab], "the shape of the noise, [n, vocab]")
    expect_equal(got.dtype, torch.float32, "the dtype of the noise")
    return got


@task("1.6")
def test_noise_has_no_state(part: ModuleType) -> None:
    """The same seed and step give the same noise, in any row, at any time."""
    first = noise_of(part, [7, 8], [3, 5], 4)
    same = noise_of(part, [7, 8], [3, 5], 4)
    why = "The same call made twice gives other numbers: a generator or a state is in them."
    what = "the noise of the same call made again"
    expect_close(same, first, what, rtol=0, atol=0, why=why)
    start_script()
    alone = noise_of(part, [8], [5], 4)
    what = "the noise of seed 8 at step 5, in row 1 of 2 instead of alone"
    rows = noise_of(part, [8, 8], [5, 5], 4)
    is_the_row = torch.equal(rows[0], alone[0]) and torch.equal(rows[1], first[1])
    why = "Row 0 of 2 has the noise that it has alone: the number of the row is in the noise."
    expect_close(rows[1], alone[0], what, rtol=0, atol=0, why=why if is_the_row else NO_STATE)
    again = noise_of(part, [8, 7, 7], [5, 3, 3], 4)
    for row, same in ((0, 1), (1, 0), (2, 0)):
        seed, step = [(8, 5), (7, 3), (7, 3)][row]
        what = f"the noise of seed {seed} at step {step}, asked for again"
        expect_close(again[row], first[same], what, rtol=0, atol=0, why=NO_STATE)


@task("1.6")
def test_noise_of_a_token_does_not_depend_on_the_vocabulary(part: ModuleType) -> None:
    """The noise of the first tokens is the same whatever the size of the vocabulary."""
    long = noise_of(part, [7, 8], [3, 3], 12)[:, :5]
    what = "the noise of tokens 0 to 4 when the vocabulary has 5 tokens instead of 12"
    expect_close(noise_of(part, [7, 8], [3, 3], 5), long, what, rtol=0, atol=0, why=NO_STATE)


@task("1.6")
def test_noise_is_finite(part: ModuleType) -> None:
    """Noise is finite for every seed, step and token."""
    seeds, steps = [1, 1, -(2**63), 2**63 - 1], [*EXTREME_STEPS, 0, 2**31]
    noise = noise_of(part, seeds, steps, 50_000)
    for row, token in (~noise.isfinite()).nonzero().tolist():
        where = f"seed {seeds[row]}, step {steps[row]}, token {token}"
        value = float(noise[row, token])
        expect(False, f"the noise of {where} is {value}", why=f"{INSIDE} {OUTSIDE.get(value, '')}")


INSIDE = "u must stay inside (0, 1): at 0 and at 1 the logarithms are infinite."
OUTSIDE = {
    math.inf: "+inf comes of an E of 0: u is 0, or so small that float32 rounds 1 - u to 1.",
    -math.inf: "-inf comes of an infinite E: u is 1, and float32 rounds to 1 what is close below it.",
}
"""Where u was, by what became of it."""


ONCE_IN_60000 = 11.0
"""Noise larger than this is as rare."""
HALF_A_STEP = 22.0
"""Noise of a u of 2**-32, the smallest step of 32 bits, is 22.2."""


@task("1.6")
def test_the_smallest_u_is_not_raised(part: ModuleType) -> None:
    """A u of almost 0 stays as small as it is: it makes the largest noise."""
    largest = float(noise_of(part, [1], [EXTREME_STEPS[0]], 4)[0, 0])
    if largest == round(largest):
        why = f"The noise itself is cut off at {largest:g}: many tokens reach the same ceiling."
    else:
        u = -math.expm1(-math.exp(-largest))
        why = (
            f"The hash is 0 here and u about 1e-10. This is the noise of a u of {u:.2g}: u was raised, "
            "and many tokens reach the same ceiling. It is enough that u is not 0."
        )
    # Noise that combines its hashes in another way is in between once in 60,000.
    is_raised = ONCE_IN_60000 < largest < HALF_A_STEP
    expect(not is_raised, f"noise ends at {largest:.2f}, where it should reach 22", why=why)


ALL_BITS = "All 64 bits of a seed count."
LONG = (
    "An output may have hundreds of thousands of tokens, and each step of it has noise of its own."
)
UNLIKE = [
    ((7, 3), (7, 4), "Noise without the step is the same at every step: the same token wins."),
    ((7, 3), (8, 3), "Each seed has noise of its own."),
    ((7, 3), (8, 2), "7 + 3 is 8 + 2: one request repeats another one's noise."),
    ((7, 3), (6, 2), "7 ^ 3 is 6 ^ 2: one request repeats another one's noise."),
    ((7, 3), (3, 7), "Seed 7 at step 3 is not seed 3 at step 7."),
    ((7, 3), (7 + (1 << 31), 3), ALL_BITS),
    ((7, 3), (7 + (1 << 32), 3), ALL_BITS),
    ((7, 3), (7 + (1 << 62), 3), ALL_BITS),
    ((7, 3), (7 - (1 << 63), 3), ALL_BITS),
    ((7, 3), (7 + (7 << 32), 3), "The two halves of the second seed, 7 and 7, cancel each other."),
    ((-1, 3), ((1 << 32) - 1, 3), ALL_BITS),
    ((7, 3), (-7, 3), ALL_BITS),
    ((-7, 3), (-8, 3), ALL_BITS),
    ((0, 3), (1, 3), "0 is a seed like any other."),
    ((7, 3), (7, 3 + (1 << 12)), LONG),
    ((7, 3), (7, 3 + (1 << 16)), LONG),
]
"""Pairs of (seed, step), and what is wrong where they have the same noise."""


@task("1.6")
def test_other_seeds_and_steps_have_other_noise(part: ModuleType) -> None:
    """Two rows that differ in seed or step know nothing of each other."""
    for one, other, why in UNLIKE:
        start_script()
        seeds, steps = zip(one, other, strict=True)
        rows = noise_of(part, list(seeds), list(steps), 20_000)
        found = abs(correlation(rows[0], rows[1]))
        pair = f"seed {one[0]} at step {one[1]} and seed {other[0]} at step {other[1]}"
        problem = f"the noise of {pair} is correlated ({found:.2f})"
        if torch.equal(rows[0], rows[1]):
            values = ", ".join(f"{value:.5g}" for value in rows[0, :3].tolist())
            problem = f"the noise of {pair} is the same: {values}, ..."
        if found >= 0.06 and why is LONG:
            why = f"{LONG}{unused_bits(part)}"
        if found >= 0.06 and why is ALL_BITS:
            why = f"{ALL_BITS} {of_the_seed(lambda seed: noise_at_once(part, seed))}".strip()
        expect(found < 0.06, problem, why=why)


def noise_at_once(part: ModuleType, seed: int, step: int = 3) -> list[float]:
    """The noise of a few tokens, not written down."""
    given = part.noise.gumbel_noise(torch.tensor([seed]), torch.tensor([step]), 8)
    return [float(value) for value in given[0]]


def unused_bits(part: ModuleType) -> str:
    """From which bit on a step changes nothing, if there is one."""
    none = noise_at_once(part, 7, 0)
    used = [bit for bit in range(32) if noise_at_once(part, 7, 1 << bit) != none]
    first = used[-1] + 1 if used else 0
    if used != list(range(first)) or first == 32:
        return ""
    return f" Here bit {first} of the step and those above it change nothing."


@task("1.6")
def test_neighbouring_tokens_have_other_noise(part: ModuleType) -> None:
    """Within a row, the noise of a token knows nothing of that of the tokens around it."""
    row = noise_of(part, [SESSION.seed], [0], 40_000)[0]
    for apart in (1, 2, 256):
        found = abs(correlation(row[:-apart], row[apart:]))
        expect(found < 0.05, f"the noise of tokens {apart} apart is correlated ({found:.2f})")


OTHER_NOISE = {
    "exponential noise, -log(1 - u)": (1.0, 1.0),
    "normal noise": (0.0, 1.0),
    "u itself": (0.5, 1 / 12),
    "log(-log(1 - u)), without the last minus": (-0.577, 1.645),
}
"""Mean and variance of what may be taken for Gumbel noise."""


def expect_gumbel(values: Tensor, what: str) -> None:
    mean, variance = float(values.double().mean()), float(values.double().var())
    why = (
        f"-log(-log(1 - u)) has mean 0.577 and variance 1.645; here they are {mean:.3f} and "
        f"{variance:.3f}."
    )
    for name, (its_mean, its_variance) in OTHER_NOISE.items():
        if abs(mean - its_mean) < 0.05 and abs(variance - its_variance) < 0.05:
            why += f" Those are the ones of {name}."
    expect(gumbel_chance(values) > SURELY_NOT, f"{what} is not standard Gumbel noise", why=why)


@task("1.6")
def test_noise_is_gumbel_over_tokens_steps_and_seeds(part: ModuleType) -> None:
    """Over tokens, over steps and over seeds, noise follows the standard Gumbel distribution."""
    count, first = 60_000, 1000 * SESSION.seed
    many, one = list(range(first, first + count)), [5] * count
    expect_gumbel(noise_of(part, [first], [9], count), "noise over 60,000 tokens")
    expect_gumbel(noise_of(part, one, many, 1), "noise over 60,000 steps of a seed")
    expect_gumbel(noise_of(part, many, one, 1), "noise over 60,000 seeds")
    steps = list(range(1500))
    of_seed_0 = noise_of(part, [0] * len(steps), steps, len(steps))
    expect_gumbel(of_seed_0.diagonal(), "the noise of token t at step t of seed 0")


@task("1.6")
def test_the_upper_tail_is_fine_grained(part: ModuleType) -> None:
    """Large noise, which decides which token wins, takes nearly as many values as there are draws."""
    largest = noise_of(part, [1, 2, 3, 4], [0] * 4, 500_000).flatten().topk(800).values
    repeated = 800 - len(largest.unique())
    why = "Few values come out of the hash: & and | lose bits, ^ does not."
    steps = -torch.expm1(-torch.exp(-largest.double())) * 2.0**24
    if bool(((steps - steps.round()).abs() < 0.05).all()):
        why = (
            "All of them come from a u that is a whole number of steps of 2**-24 below 1: that is how "
            "dense float32 is there, so -log(u) takes few values, and those are the winners. Floats are "
            "dense close to 0: use 1 - u, as log1p(-u)."
        )
    problem = f"of the 800 largest of 2 million values {repeated} occur more than once"
    expect(repeated < 10, problem, why=why)


MOST_ALIKE = 5
"""Of a million values, so many may be equal to the smallest: float32 itself is coarse there."""


@task("1.6")
def test_the_lower_tail_has_no_floor(part: ModuleType) -> None:
    """Small noise, of a u close to 1, is not cut off: u is kept away from 1, and from nothing else."""
    noise = noise_of(part, [5, 6], [0, 0], 500_000)
    smallest = float(noise.min())
    count = int((noise == smallest).sum())
    problem = f"of a million values {count:,} are {smallest:.4f}, and none is smaller"
    if smallest == round(smallest):
        why = f"The noise itself is cut off at {smallest:g}."
    else:
        why = (
            f"This is the noise of a u of {-math.expm1(-math.exp(-smallest)):.7g}: u was lowered to it. "
            "It is enough that u is not 1: float32 makes 1 of what is closer to it than 2**-25."
        )
    expect(count <= MOST_ALIKE, problem, why=why)


@task("1.6")
@examples(40)
@given(
    st.lists(
        st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(0, 5000)), min_size=1, max_size=6
    ),
    st.integers(1, 40),
    st.data(),
)
def test_any_row_has_the_same_noise_alone(
    part: ModuleType, rows: list[tuple[int, int]], vocab: int, data: st.DataObject
) -> None:
    """A row's noise does not depend on the rows around it."""
    seeds, steps = (list(column) for column in zip(*rows, strict=True))
    together = noise_of(part, seeds, steps, vocab)
    row = data.draw(st.integers(0, len(rows) - 1))
    alone = noise_of(part, [seeds[row]], [steps[row]], vocab)
    what = f"the noise of row {row} of {len(rows)}, asked for alone"
    expect_close(alone[0], together[row], what, rtol=0, atol=0, why=NO_STATE)


@task("1.6")
def test_noise_is_made_where_the_seeds_are(part: ModuleType) -> None:
    """Noise is made on the device of the seeds."""

    def call(device: str) -> Any:
        seeds = torch.zeros(2, dtype=torch.int64, device=device)
        return part.noise.gumbel_noise(seeds, seeds, 4)

    expect_on_its_device(call, "gumbel_noise(seeds, steps, 4)")
