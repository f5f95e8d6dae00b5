"""Task 22.1: a convolution over the last tokens, and the tail that it leaves."""

from types import ModuleType
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from grader.kit import examples, expect, expect_equal, note, task
from grader.kit.growth import expect_growth
from grader.kit.storage import expect_calls_apart
from grader.suites.state_cache.operations import expect_as_many, expect_no_reads
from grader.suites.state_cache.rules import (
    BF16,
    EXACT,
    F32,
    F64,
    conv,
    drawn,
    expect_pair,
    expect_values,
)

NEWEST = (
    "The newest input is multiplied by the last column of weight; the tail holds its newest last."
)
OWN = (
    "Before a sequence's first token lies its own tail, not the end of the sequence in front of it in "
    "the batch."
)
SHORT = (
    "A sequence of fewer tokens than the tail is long keeps a part of its old tail: the tail moves on "
    "by as many places as there are tokens."
)
NONE = "A sequence without tokens has moved on by nothing. Its tail stays, to the bit."
BEHIND = "Rows after the last sequence belong to none: out is 0 there."
CUT = "What a call leaves in the tails is all that the next one needs of the tokens before."
SILU = "SiLU comes last, of the sum with its bias."
WIDE = "Inputs of 16 bits are widened to the dtype of tails before anything is multiplied or added."
TAILS_ROUNDED = (
    "These are the numbers of tails that were rounded to bfloat16 first, as x is. Tails are wider: x "
    "is widened to their dtype, and they are used as they are."
)
DIGITS = (
    "Tails have a dtype of their own: what a short sequence keeps of them stays to the bit, whatever "
    "x's dtype is."
)
LAST = "The sum, the bias and SiLU are as wide as the tails; x's dtype comes last, once."
LEFT = "The caller may need them again: tails are returned as new tensors."
LOOP = (
    "A loop over tokens or over sequences launches kernels for each. Put every sequence after its tail "
    "in one row, and a loop over the width is all that is left."
)
SQUARE = "Each output is a sum of `width` products: nothing of the size [T, T] is needed."


Given = tuple[Tensor, Tensor, Tensor, Tensor]


def starts_of(lens: list[int]) -> Tensor:
    return torch.tensor([0, *lens]).cumsum(0).int()


def run(part: ModuleType, x: Tensor, weight: Tensor, bias: Any, tails: Tensor, lens: list[int],
        silu: bool = False) -> tuple[Any, Any]:  # fmt: skip
    note(f"short_conv(x {list(x.shape)}, width {weight.shape[1]}, lengths {lens}, silu={silu})")
    got = part.short_conv(x, weight, bias, tails.clone(), starts_of(lens), silu)
    return expect_pair(got, "short_conv")


def case(
    lens: list[int], width: int = 3, channels: int = 4, seed: int = 0, behind: int = 0
) -> Given:
    """x, weight, bias and tails, float64."""
    return (
        drawn(sum(lens) + behind, channels, seed=seed),
        drawn(channels, width, seed=seed + 1),
        drawn(channels, seed=seed + 2),
        drawn(len(lens), channels, width - 1, seed=seed + 3),
    )


def check(got: tuple[Any, Any], given: Any, lens: list[int], silu: bool, why: str,
          tolerance: float = EXACT) -> None:  # fmt: skip
    """Values and tails, with what usual mistakes would give."""
    x, weight, bias, tails = given
    rows = sum(lens)
    right, after = conv(x[:rows], weight, bias, tails, lens, silu)

    def other(**changed: Any) -> Tensor:
        made = {
            "weight": weight,
            "bias": bias,
            "tails": tails,
            "silu": silu,
            "lens": lens,
            **changed,
        }
        return conv(x[:rows], **made)[0]

    plain = other(bias=None, silu=False)
    kinds = {
        f"The factors are taken the other way round. {NEWEST}": lambda: other(
            weight=weight.flip(1)
        ),
        f"The tails are read the other way round. {NEWEST}": lambda: other(tails=tails.flip(2)),
        f"The tails were not read. {OWN}": lambda: other(tails=torch.zeros_like(tails)),
        f"The inputs before a sequence are its neighbour's. {OWN}": lambda: other(
            tails=tails[:1], lens=[rows]
        ),
    }
    if silu:
        kinds["SiLU was left out."] = lambda: other(silu=False)
    else:
        kinds["SiLU was computed, and was not asked for."] = lambda: other(silu=True)
    if bias is not None:
        kinds[f"The bias was left out. {SILU}"] = lambda: other(bias=None)
        kinds[f"The bias was added after SiLU. {SILU}"] = lambda: plain * plain.sigmoid() + bias
    expect_values(got[0][:rows], right, "out", tolerance=tolerance, why=why, kinds=kinds)
    begun = conv(x[:rows], weight, bias, torch.zeros_like(tails), lens, silu)[1]
    ends = {
        f"These are the tails as they were given. {CUT}": lambda: tails.double(),
        f"The tails are the other way round. {NEWEST}": lambda: after.flip(2),
        f"What was in the tails before is gone. {SHORT}": lambda: begun,
    }
    if behind := len(x) - rows:
        longer = [*lens[:-1], lens[-1] + behind]
        ends["The last tail is taken from the rows of padding after the last sequence."] = lambda: (
            conv(x, weight, bias, tails, longer, silu)[1]
        )
    expect_values(got[1], after, "the tails after it", tolerance=tolerance, why=why, kinds=ends)


@task("22.1")
def test_a_sequence_by_hand(part: ModuleType) -> None:
    """Factors 1, 10, 100 and the inputs 5, 6 | 1, 2, 3: out is 165, 216 and 321, the tail is 2, 3."""
    x, weight = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[1.0, 10.0, 100.0]])
    given = x, weight, None, torch.tensor([[[5.0, 6.0]]])
    check(run(part, *given, [3]), given, [3], False, NEWEST, 1e-6)


@task("22.1")
def test_a_sequence_does_not_see_its_neighbour(part: ModuleType) -> None:
    """Three sequences in one batch give what each gives alone."""
    given, lens = case([3, 1, 4]), [3, 1, 4]
    check(run(part, *given, lens), given, lens, False, OWN)


@task("22.1")
def test_a_tail_moves_on_by_the_tokens_there_are(part: ModuleType) -> None:
    """With a width of 5 and sequences of 1 to 3 tokens, tails keep some of what they held."""
    given, lens = case([1, 2, 3], width=5), [1, 2, 3]
    check(run(part, *given, lens), given, lens, False, SHORT)


@task("22.1")
def test_a_sequence_without_tokens_keeps_its_tail(part: ModuleType) -> None:
    """Sequences of no tokens lie at the front, between others and at the end."""
    given, lens = case([0, 2, 0, 0, 3, 0]), [0, 2, 0, 0, 3, 0]
    got = run(part, *given, lens)
    expect_values(got[1][[0, 2, 3, 5]], given[3][[0, 2, 3, 5]], "the tails of no tokens", why=NONE)
    check(got, given, lens, False, OWN)


@task("22.1")
def test_rows_of_no_sequence_are_zero(part: ModuleType) -> None:
    """After the last sequence there are rows of padding, which may hold anything."""
    given, lens = case([2, 3], behind=4), [2, 3]
    given[0][5:] = torch.nan
    got = run(part, *given, lens)
    expect_equal(list(got[0].shape), [9, 4], "the shape of out")
    expect_values(got[0][5:], torch.zeros(4, 4), "the rows after the last sequence", why=BEHIND)
    check(got, given, lens, False, "")


@task("22.1")
def test_a_sequence_may_be_cut_anywhere(part: ModuleType) -> None:
    """Tokens in two calls give what they give in one."""
    given, lens = case([6]), [6]
    x, weight, bias, tails = given
    for cut in (1, 2, 5):
        first, middle = run(part, x[:cut], weight, bias, tails.clone(), [cut])
        second, after = run(part, x[cut:], weight, bias, middle, [6 - cut])
        why = f"Cut after token {cut}. {CUT}"
        check((torch.cat([first, second]), after), given, lens, False, why)


@task("22.1")
def test_silu_follows_the_bias(part: ModuleType) -> None:
    """silu(sum + bias), and without either what is left."""
    given, lens = case([4, 2]), [4, 2]
    x, weight, _, tails = given
    for silu in (False, True):
        check(run(part, *given, lens, silu), given, lens, silu, SILU)
        bare = x, weight, None, tails
        check(run(part, *bare, lens, silu), bare, lens, silu, SILU)


def expect_one_rounding(off: Tensor, what: str, why: str) -> None:
    """off: the largest relative error of a result in bfloat16."""
    got = float(off)
    problem = (
        f"{what} in bfloat16: the largest relative error is {got:.2g}; one rounding makes 0.0039"
    )
    expect(got <= 2.0**-8 * (1 + 1e-9) + 1e-9, problem, why=why)


@task("22.1")
def test_sums_are_as_wide_as_the_tails(part: ModuleType) -> None:
    """Inputs in bfloat16 give outputs in bfloat16, rounded last; tails stay float32, to the bit."""
    lens = [5, 1, 0, 2]
    x, weight, bias, tails = (one.to(BF16) for one in case(lens, width=4))
    tails = tails.float() + 2.0**-12  # digits that bfloat16 has not
    weight[:, :3] *= 30
    out, after = run(part, x, weight, bias, tails, lens)
    right, ends = conv(x, weight, bias, tails, lens, False)
    expect_values(out, right.to(BF16), "out", tolerance=2.0**-7, dtype=BF16, why=WIDE)

    def off(exact: Tensor) -> Tensor:
        return ((out.double() - exact).abs() / exact.abs().clamp(min=1.0)).max()

    narrowed, _ = conv(x, weight, bias, tails.to(BF16).float(), lens, False)
    are_rounded = float(off(narrowed)) <= 2.0**-8 < float(off(right))
    expect_one_rounding(off(right), "out", TAILS_ROUNDED if are_rounded else WIDE)
    expect_values(after, ends, "the tails after it", dtype=F32, tolerance=0.0, why=DIGITS)
    weight /= 64
    low = torch.full_like(bias, -10.0)  # there a small change of the sum is a large one of SiLU
    out, _ = run(part, x, weight, low, tails, lens, True)
    right, _ = conv(x, weight, low, tails, lens, True)
    worst = ((out.double() - right).abs() / right.abs()).max()
    expect_one_rounding(worst, "out with silu=True", LAST)


@task("22.1")
def test_what_is_given_stays(part: ModuleType) -> None:
    """x, weight, bias and tails are as they were, and so is what an earlier call returned."""
    lens = [3, 0, 1]
    given = case(lens)
    before = [one.clone() for one in given]
    first = expect_pair(part.short_conv(*given, starts_of(lens)), "short_conv")
    for name, one, old in zip(("x", "weight", "bias", "tails"), given, before, strict=True):
        expect_values(one, old, f"{name} after the call", why=LEFT)
    held = [one.clone() for one in first]
    run(part, *case(lens, seed=50), lens)
    for name, one, old in zip(("out", "the tails"), first, held, strict=True):
        expect_values(one, old, f"{name} of the first call, after a second", why=LEFT)

    def call(seed: int) -> Any:
        return part.short_conv(*case(lens, seed=seed), starts_of(lens))

    expect_calls_apart({"short_conv": call})


@task("22.1")
def test_no_loop_over_tokens_or_sequences(part: ModuleType) -> None:
    """The number of operations depends on the width alone, and the host waits for nothing."""

    def of(lens: list[int]) -> Any:
        given = case(lens)
        return lambda: part.short_conv(*given, starts_of(lens), True)

    expect_no_reads(of([3, 1]), "short_conv")
    for few, many, told in (
        ([3, 4], [30, 41], "7 tokens and with 71"),
        ([2] * 3, [2] * 24, "3 sequences and with 24"),
    ):
        expect_as_many(part, "short_conv", of(few), of(many), told, LOOP)


@task("22.1")
def test_work_grows_with_tokens_alone(part: ModuleType) -> None:
    """Twice as many tokens are twice the work."""

    def make(size: int) -> Any:
        given = case([size, size])
        return lambda: part.short_conv(*given, starts_of([size, size]))

    expect_growth(part, "short_conv", "tokens in each of 2 sequences", make, exponent=1, why=SQUARE)


@task("22.1")
@examples(40)
@given(
    st.lists(st.sampled_from([0, 1, 1, 2, 3, 7]), min_size=1, max_size=6),
    st.integers(2, 5), st.integers(0, 3), st.booleans(), st.integers(0, 999),
)  # fmt: skip
def test_any_batch(
    part: ModuleType, lens: list[int], width: int, behind: int, silu: bool, seed: int
) -> None:
    """Any lengths give what the tokens give one by one."""
    given = case(lens, width, 3, seed, behind)
    got = run(part, *given, lens, silu)
    expect_values(got[0][sum(lens) :], torch.zeros(behind, 3, dtype=F64), "rows after", why=BEHIND)
    check(got, given, lens, silu, f"{OWN} {SHORT}")
