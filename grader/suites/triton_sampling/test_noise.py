"""Task 12.1: Gumbel noise in a kernel."""

from types import ModuleType
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from grader.kit import Mismatch, examples, expect, expect_close, task, watch
from grader.kit.expect import claiming
from grader.kit.far import FAR_WHY, far
from grader.kit.mistakes import told_by
from grader.kit.standing import expect_results_stand
from grader.kit.triton_watch import watching
from grader.suites.triton_sampling.calls import theirs, times_of
from grader.suites.triton_sampling.plugged import SAME_NOISE
from grader.suites.triton_sampling.plugging import theirs_of
from solutions.sampler.noise import gumbel_noise

LUCKY, LUCKIEST, UNLUCKY = 147_223_840, 2_509_686_267, 2_285_169_398
"""Seeds whose token 0 has the bits 1, 0 and 2**32 - 1 at step 0: the hash can be computed backwards."""

TILES = (
    "The programs of a row make the noise of BLOCK tokens each: there are triton.cdiv(vocab, BLOCK), "
    "which rounds up, since a last tile of one token is a tile, too."
)
SMALL = 1 / 16
FORMULA = "It is G = -log(E), with E = -log(1 - u) and u = (bits + 1/2) / 2**32."
LOST = "In float32 1 - u has lost the last digits of u."
SIDES = (
    "Below SMALL = 1/16: u + u**2 / 2 + u**3 / 3 + u**4 / 4 + u**5 / 5, for 1 - u has lost too many "
    "digits there. The first term left out is u**6 / 6: from SMALL on that is too much, and it is the "
    "logarithm."
)


def noise_of(part: ModuleType, seeds: list[int], steps: list[int], vocab: int) -> torch.Tensor:
    with watching():
        made: torch.Tensor = watch(part.noise, "noise").gumbel_noise(
            torch.tensor(seeds), torch.tensor(steps), vocab
        )
    return made


def expect_noise(
    part: ModuleType, seeds: list[int], steps: list[int], vocab: int, what: str, *, why: str
) -> None:
    right = gumbel_noise(torch.tensor(seeds), torch.tensor(steps), vocab)
    got = noise_of(part, seeds, steps, vocab)
    expect_close(got, right, what, rtol=2e-6, atol=2e-6, why=why)


@task("12.1")
def test_the_noise_is_that_of_lab_1(part: ModuleType) -> None:
    """Seed, step and token give the noise of lab 1, up to rounding."""
    seeds, steps = torch.tensor([1, 7]), torch.tensor([0, 3])
    got, right = noise_of(part, [1, 7], [0, 3], 200), gumbel_noise(seeds, steps, 200)
    why = told_by(got, _of_other_formulas(right), right) or f"{SAME_NOISE} {FORMULA}"
    expect_close(got, right, "the noise of seeds 1 and 7", rtol=2e-6, atol=2e-6, why=why)


def _of_other_formulas(right: torch.Tensor) -> dict[str, torch.Tensor]:
    """What the likely mistakes give where the noise is `right`, each by its explanation."""
    time = torch.exp(-right.double())
    uniform = -torch.expm1(-time)
    return {
        f"These are the numbers for E = -log(u). {FORMULA}": -torch.log(-torch.log(uniform)),
        f"These are the times E: the second logarithm is left out. {FORMULA}": time,
        f"These are the numbers for u itself. {FORMULA}": uniform,
        f"These are the numbers for log(E), with the other sign. {FORMULA}": torch.log(time),
    }


@task("12.1")
def test_every_bit_of_a_seed_matters(part: ModuleType) -> None:
    """Seeds beyond 32 bits and negative ones have a noise of their own."""
    why = "Both halves of the seed go into the key; `row_key` does that, and takes int64."
    seeds = [5, 5 + 2**32, -5, 2**63 - 1]
    expect_noise(part, seeds, [0, 0, 1, 2**31], 20, f"the noise of seeds {seeds}", why=why)


@task("12.1")
def test_the_luckiest_token(part: ModuleType) -> None:
    """Where u is tiny, E is u and not what is left of log(1 - u) after rounding."""
    why = (
        "Token 0 has the bits 1, u = 3.5e-10. In float32 1 - u is 1 and its logarithm 0: no digit of u "
        "is left, and it is the token with the smallest u that wins."
    )
    got = noise_of(part, [LUCKY], [0], 3)
    expect(bool(got.isfinite().all()), "the noise of the luckiest token is not finite", why=why)
    right = gumbel_noise(torch.tensor([LUCKY]), torch.tensor([0]), 3)
    expect_close(got, right, "the noise of a lucky token", rtol=2e-6, atol=2e-6, why=why)
    why = (
        "Token 0 has the bits 0: u = 1/2 / 2**32 is the smallest of all, and its noise of 22.87 the "
        "largest. The half keeps it finite."
    )
    what = "the noise of a token with the bits 0"
    with claiming("Nothing limits the noise: the smallest u of all has the largest."):
        expect_noise(part, [LUCKIEST], [0], 3, what, why=why)


@task("12.1")
def test_the_unluckiest_token(part: ModuleType) -> None:
    """Where u rounds to 1, E is that of the largest u below 1, and not infinite."""
    why = (
        "float32 rounds the largest u to 1, where E would be infinite: LARGEST_UNIFORM is the most."
    )
    got = noise_of(part, [UNLUCKY], [0], 3)
    expect(bool(got.isfinite().all()), "the noise of the unluckiest token is not finite", why=why)
    right = gumbel_noise(torch.tensor([UNLUCKY]), torch.tensor([0]), 3)
    expect_close(got, right, "the noise of an unlucky token", rtol=2e-6, atol=2e-6, why=why)


@task("12.1")
def test_noise_of_a_whole_vocabulary(part: ModuleType) -> None:
    """A vocabulary of many tiles that none divides; the noise of every token is finite."""
    vocab = 65 * 1024 + 1
    got = noise_of(part, [3], [5], vocab)
    lost = got.isnan()[0].nonzero().flatten().tolist()
    told = f"{len(lost):,} of {vocab:,} tokens have no noise, the first is token"
    expect(
        not lost, f"{told} {lost[0] if lost else 0:,}: nothing was ever written there", why=TILES
    )
    why = (
        "float32 rounds the largest u to 1, where E would be infinite: LARGEST_UNIFORM is the most."
    )
    expect(bool(got.isfinite().all()), "the noise of some token is not finite", why=why)
    right = gumbel_noise(torch.tensor([3]), torch.tensor([5]), vocab)
    what = f"the noise of {vocab:,} tokens"
    expect_close(got, right, what, rtol=2e-6, atol=2e-6, why=SAME_NOISE)


@task("12.1")
def test_the_series_is_as_exact_as_float32(part: ModuleType) -> None:
    """The time of race_time is -log(1 - u) to a few units of float32's last digit, around SMALL too."""
    bits = [0, 5, 2**20, 2**26, 2**27, 3 * 2**26, 15 * 2**24, 2**28 - 16]
    # The first three of these are among those whose 1 - u is rounded most; at the last u is 0.098.
    bits += [33_669_760, 68_833_923, 136_473_222, 25 * 2**24]
    bits += bits[:4]  # as many as a power of two
    with theirs(part, "12.1") as are_there:
        if not are_there:
            return  # another design may need no series
        got = times_of(bits)
    numbers = (torch.tensor(bits).double() + 0.5) / 2**32
    for bit, number, time in zip(bits, numbers, got.double(), strict=True):
        right = -torch.log1p(-number)
        if not torch.isclose(time, right, rtol=4e-7, atol=0):
            what, found = f"the time of the bits {bit}, u = {number:.4g}", side_of(number, time)
            told = what if found else f"{what}, is off by more than rounding"
            raise Mismatch(told, f"{right:.9g}", f"{time:.9g}", found or SIDES)


def side_of(number: torch.Tensor, time: torch.Tensor) -> str:
    """Whether a time is what the other way to compute it gives, or the series with fewer terms."""
    single = number.float()
    logarithm = -torch.log((1 - single).double())
    terms = [number**n / n for n in range(1, 6)]
    sums = [torch.stack(terms[:count]).sum() for count in range(1, 6)]

    def fits(value: torch.Tensor) -> bool:
        return bool(torch.isclose(time, value, rtol=2e-7, atol=0))

    if number < SMALL and fits(logarithm) and not fits(sums[4]):
        what = "It is the logarithm of 1 - u, where u is below SMALL = 1/16"
        return f"{what}: there it is the series. {LOST}"
    if number >= SMALL and fits(sums[4]):
        return "It is the series, where u is not below SMALL = 1/16: there it is the logarithm."
    for count, value in enumerate(sums[:4], 1):
        if fits(value) and not fits(sums[count]):
            last = "the term u" if count == 1 else f"the terms up to u**{count} / {count}"
            return f"It is {last} alone: the series goes on up to u**5 / 5."
    return ""


@task("12.1")
def test_calls_with_other_steps(part: ModuleType) -> None:
    """The noise of a call is its own: a later call with other steps neither gets it nor changes it."""
    seeds = [1, 7]
    for steps in ([0, 3], [1, 3]):
        what = f"the noise of seeds {seeds} at steps {steps}, in a call of its own"
        expect_noise(part, seeds, steps, 5, what, why=SAME_NOISE)
    calls = [lambda step=step: noise_of(part, seeds, [step, step], 5) for step in (4, 5)]
    expect_results_stand(calls, "gumbel_noise")


@task("12.1")
def test_noise_of_rows_that_are_far_apart(part: ModuleType) -> None:
    """The offset of a row of the noise may be more than int32 holds."""
    kernel = vars(part.noise).get("noise_kernel")
    if theirs_of(part, "12.1") is None or not has_a_program_for_each_tile(part, kernel):
        return  # another design may cut its noise into other programs
    seeds, steps = torch.tensor([1, 2, 3]), torch.tensor([0, 5, 7])
    with far() as apart, watching():
        out = apart(torch.zeros(3, 64))
        kernel[(3, 1)](seeds, steps, out, out.stride(0), BLOCK=64)
        got = out.clone()
    right = gumbel_noise(seeds, steps, 64)
    what = "the noise of three rows of 2**30 tokens, at their first 64"
    expect_close(got, right, what, rtol=2e-6, atol=2e-6, why=FAR_WHY)


def has_a_program_for_each_tile(part: ModuleType, kernel: Any) -> bool:
    """Whether it has the stub's parameters, and is launched as the stub says: (row, tile of tokens)."""
    if getattr(kernel, "arg_names", None) != ["seeds", "steps", "out", "vocab", "BLOCK"]:
        return False
    with watching() as seen:
        part.noise.gumbel_noise(torch.tensor([1]), torch.tensor([0]), 20_000)
    [launch, *rest] = seen.launches
    return not rest and launch.grid == (1, -(-20_000 // int(launch.arguments["BLOCK"])), 1)


@task("12.1")
@examples(5)
@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=3),
    st.integers(0, 2**31),
    st.integers(1, 150),
)
def test_any_noise(part: ModuleType, seeds: list[int], step: int, vocab: int) -> None:
    """Any seeds, step and vocabulary give the noise of lab 1."""
    what = f"the noise of seeds {seeds} at step {step}"
    expect_noise(part, seeds, [step] * len(seeds), vocab, what, why=SAME_NOISE)
