"""Task 19.5: GPTQ, column by column and in blocks."""

from collections import Counter
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
from grader.suites.quantization.bench import making, weights
from grader.suites.quantization.gptq_kinds import why_codes
from grader.suites.quantization.test_hessian import drawn, hessian_of
from solutions import quantization as reference
from solutions.quantization.naive import gptq_codes
from yaie.core.quantized import Int4Weight

SPREAD = (
    "The error of input i, over U[i, i], goes into each input j behind it, times U[i, j]: the rest of "
    "the row makes up for what rounding did to the product."
)
LAZY = (
    "Inputs behind a block owe it a correction, too: the errors of the block's inputs, one product with "
    "U's rows of the block."
)
FRESH = (
    "The grid of a group is taken when its first input's turn comes, from weights that hold the errors "
    "of all inputs before: not from those that the call began with."
)
ONE_GRID = "A group has one grid, taken where the group begins, whatever blocks it is cut into."
DEAD = "A dead input's weights become 0 before anything is rounded: no grid needs to reach them."
DIGITS = (
    "Errors, and what goes into the inputs behind, are float32: in bfloat16 or float16 they move "
    "weights across the border of two codes."
)
SIZES = "An error goes on as it is, whatever its size."
ONCE = (
    "Within a block only the block's own inputs are corrected at each step; all behind it wait for one "
    "product. Done input by input, each step reads and writes the whole weight."
)


def gptq_of(part: ModuleType) -> Any:
    """The learner's loop on the reference's grid and factor, which have tasks of their own."""
    loop = part.Gptq(reference.Int4())
    loop.factor = reference.Gptq(reference.Int4()).factor
    return watch(loop, "gptq")


def codes_of(weight: Int4Weight) -> Tensor:
    return reference.Int4().unpack(weight)[0]


def loss(weight: Tensor, packed: Int4Weight, hessian: Tensor) -> float:
    error = (reference.Int4().dequantize(packed) - weight).double()
    return float(((error @ hessian.double()) * error).sum())


def expect_codes(
    got: Int4Weight,
    weight: Tensor,
    hessian: Tensor,
    what: str,
    why: str,
    block: int = 128,
    **how: Any,
) -> None:
    """All but one in fifty as the oracle has them, and the loss no larger: a tie may fall either way.
    why: if none of the mistakes in `gptq_kinds` gives these codes."""
    codes, scales, _ = gptq_codes(weight, hessian, got.group_size, **how)
    differ = codes_of(got) != codes
    if bool(differ.any()):
        first = int(differ.any(dim=0).nonzero()[0])
        theirs = loss(weight, got, hessian)
        right = loss(weight, reference.Int4().pack(codes, scales, gptq_codes(
            weight, hessian, got.group_size, **how)[2]), hessian)  # fmt: skip
        expect(
            float(differ.float().mean()) <= 0.02 and theirs <= right * 1.02,
            f"{what}: {int(differ.sum())} of {differ.numel()} codes differ, the first of input {first}; "
            f"the loss is {theirs:.4g}, where {right:.4g} can be had",
            why=why_codes(codes_of(got), got, weight, hessian, block=block, **how) or why,
        )


@task("19.5")
def test_two_inputs_by_hand(part: ModuleType) -> None:
    """The error of the first input moves the second one to another code."""
    # U of H = [[20, 4], [4, 1]] has U[0, 0] = 0.5 and U[0, 1] = -2: four times the error of the first
    # input goes into the second one.
    weight = torch.zeros(8, 8)
    weight[:, 0], weight[:, 1], weight[:, 2] = 1.4, 2.4, -7.5
    hessian = torch.eye(8)
    hessian[:2, :2] = torch.tensor([[20.0, 4.0], [4.0, 1.0]])
    got = gptq_of(part).quantize(weight, hessian, 8, damping=0.0)
    # 1.4 is rounded to 1: 0.4 is lost, and 2.4 + 4 * 0.4 comes to 4.
    right = [9, 12, 0, 8, 8, 8, 8, 8]
    found = codes_of(got)[0].tolist()
    kinds = {
        9: "2.4 has lost 1.6 where it has to gain them: the sign of the correction is wrong.",
        10: "2.4 was rounded as it is: the error of 1.4 has not reached it.",
        11: "2.4 has gained 0.8, half of what it must: the error is divided by U[0, 0] before it is "
        "multiplied by U[0, 1].",
    }
    why = (
        kinds.get(found[1], SPREAD) if found[:1] == right[:1] and found[2:] == right[2:] else SPREAD
    )
    what = "codes of 1.4, 2.4 and -7.5, with U[0, 0] = 0.5 and U[0, 1] = -2"
    expect_equal(found, right, what, why=why)


@task("19.5")
def test_what_is_given_stays(part: ModuleType) -> None:
    """Weight and Hessian are the caller's."""
    weight, x = weights(8, 16), drawn(60, 16)
    x[:, 3] = 0
    hessian = hessian_of(x)
    kept = weight.clone(), hessian.clone()
    gptq_of(part).quantize(weight, hessian, 8)
    expect_close(weight, kept[0], "the weight that was given", why="Errors go into a copy.")
    expect_close(hessian, kept[1], "the Hessian that was given", why="Errors go into a copy.")


@task("19.5")
def test_a_block_by_the_definition(part: ModuleType) -> None:
    """Within one block the codes are those of GPTQ as it is defined."""
    weight, hessian = weights(16, 32), hessian_of(drawn(80, 32))
    for symmetric in (True, False):
        start_script()
        got = gptq_of(part).quantize(weight, hessian, 32, symmetric=symmetric)
        expect_codes(got, weight, hessian, "a group of 32", SPREAD, symmetric=symmetric)


@task("19.5")
def test_errors_reach_later_blocks(part: ModuleType) -> None:
    """Cut into blocks the codes stay the same."""
    weight, hessian = weights(16, 64), hessian_of(drawn(100, 64))
    for block in (8, 16, 32, 64):
        start_script()
        got = gptq_of(part).quantize(weight, hessian, 64, block=block)
        right = gptq_codes(weight, hessian, 64)[1]
        what = f"scales of one group with blocks of {block}"
        expect_close(got.scales.float(), right.float(), what, rtol=1e-2, why=ONE_GRID)
        expect_codes(got, weight, hessian, f"blocks of {block}", LAZY, block)


@task("19.5")
def test_grids_are_taken_when_their_turn_comes(part: ModuleType) -> None:
    """A group's scales fit its weights as the errors of earlier groups have left them."""
    x = drawn(200, 32)
    x[:, 16:] = x[:, :16] + 0.1 * x[:, 16:]
    weight, hessian = weights(16, 32), hessian_of(x)
    for block in (32, 16, 8, 128):
        start_script()
        got = gptq_of(part).quantize(weight, hessian, 16, block=block)
        right = gptq_codes(weight, hessian, 16)[1]
        expect_close(
            got.scales.float(),
            right.float(),
            f"scales with blocks of {block}",
            rtol=1e-2,
            why=FRESH,
        )
        expect_codes(got, weight, hessian, f"two groups, blocks of {block}", FRESH, block)


@task("19.5")
def test_dead_inputs_become_zero(part: ModuleType) -> None:
    """A weight that was never used is 0 afterwards, and widens no grid."""
    x = drawn(60, 16)
    x[:, 5] = 0
    weight, hessian = weights(8, 16), hessian_of(x)
    weight[:, 5] = 100.0
    got = gptq_of(part).quantize(weight, hessian, 8)
    back = reference.Int4().dequantize(got)
    expect_close(back[:, 5], torch.zeros(8), "weights of the dead input", why=DEAD)
    expect_codes(got, weight, hessian, "a weight with a dead input", DEAD)


@task("19.5")
def test_it_beats_rounding_to_the_nearest(part: ModuleType) -> None:
    """The product changes less than by rounding each weight to the nearest."""
    weight, hessian = weights(16, 64), hessian_of(drawn(200, 64).cumsum(dim=1) / 4)
    for symmetric in (True, False):
        got = gptq_of(part).quantize(weight, hessian, 16, symmetric=symmetric)
        nearest = reference.Int4().quantize(weight, 16, symmetric=symmetric)
        ours, theirs = loss(weight, got, hessian), loss(weight, nearest, hessian)
        told = f"the loss is {ours:.4g}, and {theirs:.4g} by rounding to the nearest"
        expect(ours < 0.8 * theirs, told)


@task("19.5")
def test_later_blocks_wait_for_one_product(part: ModuleType) -> None:
    """What lies behind a block is corrected once, not at each of its inputs."""
    weight, hessian = weights(24, 256), hessian_of(drawn(300, 256))
    loop = gptq_of(part)
    with making() as made:
        loop.quantize(weight, hessian, 16, block=16)
    wide = [
        name
        for name, shape, _ in made.results
        if len(shape) == 2 and shape[0] == 24 and 40 < shape[1] < 256
    ]
    num_blocks = 256 // 16
    problem = (
        f"{len(wide)} operations on the inputs behind a block, of {num_blocks} blocks, where "
        f"{6 * num_blocks} do"
    )
    expect(len(wide) <= 6 * num_blocks, problem, why=ONCE)
    whole = made.lines_of(lambda shape: sorted(shape) == [24, 256])
    problem = (
        f"{len(whole)} tensors of the whole weight's size are made for 256 inputs, where 64 do"
    )
    if len(whole) > 64:
        (name, line), count = Counter(whole).most_common(1)[0]
        expect(False, f"{problem}: {count} of them by {name}{line and f' in {line}'}")


@task("19.5")
@examples(12)
@given(
    st.integers(1, 2), st.integers(1, 3), st.sampled_from([8, 16]), st.sampled_from([8, 16, 48]),
    st.booleans(), st.sampled_from([0.01, 0.1]), st.integers(0, 99),
)  # fmt: skip
def test_any_weight(
    part: ModuleType, out: int, groups: int, size: int, block: int, symmetric: bool, damping: float,
    seed: int,
) -> None:  # fmt: skip
    """Of any weight the codes are those of GPTQ as it is defined, whatever the blocks."""
    inputs = groups * size
    weight, hessian = weights(8 * out, inputs, seed), hessian_of(drawn(2 * inputs, inputs, seed))
    got = gptq_of(part).quantize(
        weight, hessian, size, symmetric=symmetric, damping=damping, block=block
    )
    what = f"a weight [{8 * out}, {inputs}] in groups of {size} and blocks of {block}"
    expect_codes(got, weight, hessian, what, "", block, symmetric=symmetric, damping=damping)


@task("19.5")
def test_errors_are_float32(part: ModuleType) -> None:
    """Two inputs as above, at the border of two codes: a ten-thousandth decides, in the block and behind
    it."""
    for other, block in ((1, 16), (8, 8)):
        weight = torch.zeros(8, 16)
        weight[:, 0], weight[:, 7], weight[:, 15] = 1.4, -7.5, -7.5
        weight[:4, other], weight[4:, other] = 2.2999, 2.3001
        hessian = torch.eye(16)
        hessian[0, other] = hessian[other, 0] = 1.0
        hessian[other, other] = 2.0
        got = gptq_of(part).quantize(weight, hessian, 8, damping=0.0, block=block)
        told = (
            f"codes of input {other}: 2.2999 + 0.2 four times, and 2.3001 + 0.2, blocks of {block}"
        )
        expect_equal(codes_of(got)[:, other].tolist(), [10] * 4 + [11] * 4, told, why=DIGITS)
    scale = 1 + 2**-10
    weight = torch.zeros(8, 8)
    weight[:, 0], weight[:, 7] = 3 * scale, -7.5 * scale
    weight[:4, 1], weight[4:, 1] = 2.4999 * scale, 2.5001 * scale
    hessian = torch.eye(8)
    hessian[:2, :2] = torch.tensor([[1.0, 1.0], [1.0, 2.0]])
    got = gptq_of(part).quantize(weight, hessian, 8, damping=0.0)
    told = f"codes of 2.4999 and 2.5001 steps, behind an input of 3 steps of {scale}, which has no error"
    expect_equal(codes_of(got)[:, 1].tolist(), [10] * 4 + [11] * 4, told, why=DIGITS)


@task("19.5")
def test_sizes_make_no_difference(part: ModuleType) -> None:
    """Codes are those of the definition for large weights and small inputs, and for positive ones."""
    drawn_weight, hessian = weights(16, 32), hessian_of(drawn(80, 32))
    for what, weight, of_inputs in (
        ("weights of hundreds", 1000 * drawn_weight, hessian),
        ("inputs of a thousandth", drawn_weight, 1e-6 * hessian),
        ("positive weights", drawn_weight.abs() + 0.5, hessian),
    ):
        for symmetric in (True, False):
            start_script()
            got = gptq_of(part).quantize(weight, of_inputs, 16, symmetric=symmetric, block=16)
            expect_codes(got, weight, of_inputs, what, SIZES, 16, symmetric=symmetric)
