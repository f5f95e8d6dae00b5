"""Task 19.1: eight bits a weight, and a scale for each row."""

from types import ModuleType

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from grader.kit import examples, expect, expect_close, expect_equal, note, task, watch
from grader.kit.mistakes import told_by
from grader.suites.quantization.bench import ROW, STORED, expect_nearest, weights
from grader.suites.quantization.code_kinds import why_codes
from yaie.core.quantized import Int8Weight

CLAMP = (
    "A symmetric grid has as many codes on one side as on the other: -127 to 127. With -128 the "
    "smallest weight would have a partner that the largest has not, and -w another code than w."
)
WIDENED = (
    "The range is widened until it holds 0: a row of positive weights begins at 0, or 0.0, which a "
    "padded input meets, would have no code."
)
TINY = (
    "A scale of a few times 2**-24, the smallest float16, is stored several percent off: the largest "
    "weight is then 133 stored steps, and an int8 begins again at -128."
)
ZERO = "The zero is the code of 0.0, a whole number: low / scale steps above -128, to the nearest."


def grid(weight: Int8Weight) -> tuple[Tensor, Tensor]:
    zeros = torch.zeros(len(weight.scales)) if weight.zeros is None else weight.zeros
    return weight.scales, zeros


@task("19.1")
def test_a_symmetric_row(part: ModuleType) -> None:
    """The largest weight of a row comes to 127 or -127, and the others to the nearest step."""
    weight = torch.tensor([[0.5, -1.27, 0.014, 0.0]])
    got = watch(part.Int8(), "int8").quantize(weight)
    if (codes := got.codes.tolist()) != [[50, -127, 1, 0]]:
        is_like = got.codes.shape == weight.shape and got.scales.shape == (1,)
        why = why_codes(weight, got.codes, grid(got), -127, 127, STORED) if is_like else ""
        expect_equal(codes, [[50, -127, 1, 0]], "codes of 0.5, -1.27, 0.014 and 0", why=why)
    expect_close(got.scales, torch.tensor([0.01]).half(), "the scale", rtol=1e-3, why=STORED)
    expect(got.zeros is None, "a symmetric weight has zeros: there is nothing to shift by")
    expect_equal(got.codes.dtype, torch.int8, "the dtype of codes")


@task("19.1")
def test_each_row_has_its_scale(part: ModuleType) -> None:
    """A row of small weights keeps its precision beside a row of large ones."""
    for symmetric in (True, False):
        weight = torch.tensor([[1000.0, -490.0, 3.0], [0.01, -0.002, 0.004]])
        got = watch(part.Int8(), "int8").quantize(weight, symmetric=symmetric)
        expect_equal(list(got.scales.shape), [2], "the shape of scales of [2, 3]", why=ROW)
        expect_nearest(weight, got.codes, grid(got), -128, 127, "rows of 1000 and 0.01", ROW)
        span = [1000.0, 0.01] if symmetric else [1490.0, 0.012]
        right = torch.tensor(span) / (127 if symmetric else 255)
        expect_close(got.scales, right.half(), "scales", rtol=2e-3, why=ROW)


@task("19.1")
def test_the_stored_scale_is_divided_by(part: ModuleType) -> None:
    """No code is further from its weight than another would be, on the grid that is stored."""
    weight = torch.linspace(1.0, 2.0, 256)[None] * torch.tensor([[1.3], [0.7], [0.11]])
    for symmetric in (True, False):
        got = watch(part.Int8(), "int8").quantize(weight, symmetric=symmetric)
        what = "rows from half of their largest weight to all of it"
        expect_nearest(weight, got.codes, grid(got), -128, 127, what, STORED)


@task("19.1")
def test_symmetric_codes_end_at_minus_127(part: ModuleType) -> None:
    """-128 is no code of a symmetric row, and -w has the opposite code of w."""
    weight = weights(16, 64)
    codec = watch(part.Int8(), "int8")
    got, mirrored = codec.quantize(weight), codec.quantize(-weight)
    expect_nearest(weight, got.codes, grid(got), -127, 127, "a symmetric weight", CLAMP)
    expect_equal(mirrored.codes.tolist(), (-got.codes).tolist(), "codes of -w", why=CLAMP)
    widest = got.codes.abs().amax(dim=1).tolist()
    expect_equal(widest, [127] * 16, "the largest code of each row", why="scale = largest / 127.")


@task("19.1")
def test_dequantized_numbers(part: ModuleType) -> None:
    """A code stands for (code - zero) * scale, in float32."""
    codes = torch.tensor([[-128, 0, 127], [3, 2, 1]], dtype=torch.int8)
    scales = torch.tensor([0.5, 2.0]).half()
    codec = watch(part.Int8(), "int8")
    note("# int8weight1: codes [[-128, 0, 127], [3, 2, 1]], scales [0.5, 2]")
    note("# int8weight2: the same, with zeros [-128, 2]")
    got = codec.dequantize(Int8Weight(codes, scales))
    expect_close(got, torch.tensor([[-64, 0, 63.5], [6, 4, 2]]), "numbers without zeros")
    zeros = torch.tensor([-128, 2], dtype=torch.int32)
    got = codec.dequantize(Int8Weight(codes, scales, zeros))
    right = torch.tensor([[0, 64, 127.5], [2, 0, -2]])
    factors, zero = scales.float()[:, None], zeros[:, None]
    gives = {
        "127 - -128 is 255, more than an int8 holds.": (codes - zero.to(torch.int8)) * factors,
        "This is (code + zero) * scale: the zero is taken off.": (codes + zero) * factors,
        "This is code * scale - zero: the zero is taken off first.": codes * factors - zero,
        "This is code * scale: the zero is not taken off.": codes * factors,
    }
    expect_close(got, right, "numbers with zeros", why=told_by(got, gives))


@task("19.1")
def test_a_row_of_zeros(part: ModuleType) -> None:
    """A row of zeros has a scale of 1, not of 0: its codes are those of 0.0, and nothing is NaN."""
    for symmetric in (True, False):
        codec = watch(part.Int8(), "int8")
        got = codec.quantize(torch.tensor([[0.0, 0.0], [1.0, -1.0]]), symmetric=symmetric)
        why = "0 / 0 is NaN: a scale that is 0 becomes 1."
        expect_equal(float(got.scales[0]), 1.0, "the scale of a row of zeros", why=why)
        back = codec.dequantize(got)
        why = "" if bool(back[0].isfinite().all()) else why
        expect_close(back[0], torch.zeros(2), "a row of zeros, there and back", why=why)


@task("19.1")
def test_a_grid_with_a_zero_point(part: ModuleType) -> None:
    """Asymmetric codes reach from -128 to 127 over the row's range, and 0.0 has a code of its own."""
    weight = torch.tensor([[-1.0, 0.0, 0.5, 4.1]])
    got = watch(part.Int8(), "int8").quantize(weight, symmetric=False)
    # 5.1 / 255 = 0.02: 0.0 lies 50 steps above -128.
    expect(got.zeros is not None, "an asymmetric weight without zeros")
    expect_equal(got.zeros.tolist(), [-78], "the zero of -1 to 4.1", why=ZERO)
    expect_equal(got.zeros.dtype, torch.int32, "the dtype of zeros")
    expect_equal(
        got.codes.tolist(), [[-128, -78, -53, 127]], "codes of -1, 0, 0.5 and 4.1", why=ZERO
    )


@task("19.1")
def test_the_zero_is_rounded_to_the_nearest(part: ModuleType) -> None:
    """Where 0.0 lies between two codes, the nearer one becomes the zero."""
    for low, zero in ((-0.013, -127), (-0.017, -126), (-0.004, -128)):
        weight = torch.tensor([[low, 2.55 + low]])
        got = watch(part.Int8(), "int8").quantize(weight, symmetric=False)
        expect_equal(got.zeros.tolist(), [zero], f"the zero of {low} to {2.55 + low:.3f}", why=ZERO)


@task("19.1")
def test_codes_end_at_127(part: ModuleType) -> None:
    """Where the largest weight and the zero are both rounded up, the code would be 128."""
    weight = torch.tensor([[-0.00748682, 0.53644359]])
    got = watch(part.Int8(), "int8").quantize(weight, symmetric=False)
    why = "An int8 ends at 127, and 128 comes back as -128."
    expect_equal(got.codes.tolist(), [[-128, 127]], "codes of -0.0075 and 0.5364", why=why)


@task("19.1")
def test_tiny_weights_stay_in_the_range_of_codes(part: ModuleType) -> None:
    """Codes and zeros end at 127 where the stored scale is smaller than the exact one."""
    scale = 10.45 * 2.0**-24
    for symmetric, steps in ((True, 127), (False, 255)):
        weight = torch.tensor([[-steps, -40.0, 0.0], [0.0, 40.0, steps]]) * scale
        got = watch(part.Int8(), "int8").quantize(weight, symmetric=symmetric)
        what = f"a weight of up to {steps * scale:.1e}"
        if got.zeros is not None:
            expect_equal(got.zeros.tolist(), [127, -128], f"zeros of {what}", why=TINY)
        lowest = -127 if symmetric else -128
        expect_nearest(weight, got.codes, grid(got), lowest, 127, what, TINY)


@task("19.1")
def test_the_range_holds_zero(part: ModuleType) -> None:
    """A row of positive weights begins at 0, and one of negative weights ends there."""
    weight = torch.tensor([[2.0, 2.55], [-2.55, -2.0]])
    codec = watch(part.Int8(), "int8")
    got = codec.quantize(weight, symmetric=False)
    expect_equal(got.zeros.tolist(), [-128, 127], "zeros of 2 to 2.55 and -2.55 to -2", why=WIDENED)
    expect_close(codec.dequantize(got), weight, "there and back", rtol=3e-3, why=WIDENED)


@task("19.1")
@examples(25)
@given(st.integers(1, 5), st.integers(1, 40), st.booleans(), st.booleans(), st.integers(0, 999))
def test_any_weight(
    part: ModuleType, out: int, inputs: int, symmetric: bool, half: bool, seed: int
) -> None:
    """Of any weight every code is the nearest on the grid that is stored."""
    weight = weights(out, inputs, seed)
    weight = weight.half() if half else weight
    codec = watch(part.Int8(), "int8")
    got = codec.quantize(weight, symmetric=symmetric)
    expect_equal(got.scales.dtype, torch.float16, "the dtype of scales", why=STORED)
    lowest = -127 if symmetric else -128
    expect_nearest(weight, got.codes, grid(got), lowest, 127, "a weight", STORED)
    wide = weight.double()
    low, high = wide.amin(dim=1).clamp(max=0), wide.amax(dim=1).clamp(min=0)
    right = wide.abs().amax(dim=1) / 127 if symmetric else (high - low) / 255
    expect_close(got.scales.double(), right, "scales", rtol=2e-3)
    scales, zeros = (x.double()[:, None] for x in grid(got))
    back = codec.dequantize(got)
    expect_equal(back.dtype, torch.float32, "the dtype of what dequantize gives")
    expect_close(back, (got.codes.double() - zeros) * scales, "there and back", rtol=1e-5)
