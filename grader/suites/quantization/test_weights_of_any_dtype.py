"""Tasks 19.1 and 19.2: weights of any dtype and size, and what becomes of the tensors that are given."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from grader.kit import expect, expect_close, expect_equal, note, start_script, task, watch
from grader.suites.quantization.bench import expect_nearest, packed, weights
from grader.suites.quantization.test_int4 import DENSE
from grader.suites.quantization.test_int8 import grid

TIES = (
    "Halves go to the even code: `round` of PyTorch does that, and the floor of x + 0.5 does not."
)
LEAST = 2.0**-24
SMALLEST = (
    "2**-24 is the smallest scale that float16 can hold, and a scale: only one that is 0 becomes 1."
)
VANISHED = (
    "A scale under 2**-25 is rounded to 0, by which nothing can be divided: look for 0 after it is "
    "rounded to float16."
)
WIDE = (
    "float16 ends at 65504: the range of a weight in float16 may be twice that. Widen the weight to "
    "float32 before anything is computed."
)
DIGITS = "A quotient in float16 has three digits: widen weight and scale before you divide."
GIVEN = (
    "A weight is the model's, and `float()` of a float32 tensor is that tensor: an operation in place "
    "changes what was given."
)


def expect_stays(call: Callable[[Tensor], Any], what: str) -> None:
    """call: with a weight in float32 that is the caller's."""
    for kind, weight in (("float32", weights(8, 16)), ("a view", weights(16, 16)[::2])):
        kept = weight.clone()
        call(weight)
        told = f"the weight ({kind}) that {what} was given"
        expect_close(weight, kept, told, rtol=0, atol=0, why=GIVEN)


@task("19.1")
def test_halves_go_to_the_even_code(part: ModuleType) -> None:
    """A weight half-way between two codes gets the even one."""
    weight = torch.tensor([[127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5]])
    got = watch(part.Int8(), "int8").quantize(weight)
    right = [[127, 0, 2, 2, 0, -2, -2]]
    expect_equal(got.codes.tolist(), right, "codes of 127, 0.5, 1.5, 2.5 and below", why=TIES)


@task("19.1")
def test_rows_of_the_smallest_scales(part: ModuleType) -> None:
    """A scale of 2**-24 is used, and one that is rounded to 0 becomes 1."""
    codec = watch(part.Int8(), "int8")
    got = codec.quantize(torch.tensor([[127.0, 1.0, -3.0]]) * LEAST)
    expect_equal(got.scales.tolist(), [LEAST], "the scale of 127 * 2**-24", why=SMALLEST)
    expect_equal(got.codes.tolist(), [[127, 1, -3]], "codes of 127, 1 and -3 times 2**-24")
    got = codec.quantize(torch.tensor([[200.0, 0.0, -55.0]]) * LEAST, symmetric=False)
    expect_equal(got.scales.tolist(), [LEAST], "the scale of a range of 255 * 2**-24", why=SMALLEST)
    for symmetric in (True, False):
        got = codec.quantize(torch.tensor([[1e-9, -1e-9], [1.0, -1.0]]), symmetric=symmetric)
        expect_equal(float(got.scales[0]), 1.0, "the scale of weights of 1e-9", why=VANISHED)
        back = codec.dequantize(got)[0]
        expect_close(back, torch.zeros(2), "weights of 1e-9, there and back", why=VANISHED)


@task("19.1")
def test_large_weights_in_float16(part: ModuleType) -> None:
    """Weights in float16 are rounded as the same numbers in float32 are, up to the largest."""
    weight = torch.tensor([[-60000.0, 60000.0, 1000.0], [-3.0, 65504.0, 0.5]]).half()
    got = watch(part.Int8(), "int8").quantize(weight, symmetric=False)
    right = torch.tensor([120000.0, 65507.0]) / 255
    expect_close(got.scales, right.half(), "scales of -60000 to 60000, and -3 to 65504", why=WIDE)
    expect_nearest(weight, got.codes, grid(got), -128, 127, "large weights in float16", WIDE)


@task("19.1")
def test_the_weight_stays(part: ModuleType) -> None:
    """quantize changes nothing in the weight that it is given."""
    codec = watch(part.Int8(), "int8")
    for symmetric in (True, False):
        expect_stays(
            lambda weight, symmetric=symmetric: codec.quantize(weight, symmetric=symmetric),  # type: ignore[misc]
            f"quantize(symmetric={symmetric})",
        )


@task("19.2")
def test_grids_of_vanishing_weights(part: ModuleType) -> None:
    """A scale that is rounded to 0 becomes 1, on a grid of either kind."""
    for symmetric in (True, False):
        codec = watch(part.Int4(), "int4")
        group = torch.tensor([[1e-9, -1e-9], [1.0, -1.0]])
        scales, zeros = codec.grid(group, symmetric=symmetric)
        expect_equal(float(scales[0]), 1.0, "the scale of weights of 1e-9", why=VANISHED)
        codes = codec.codes(group, scales, zeros)[0].tolist()
        expect_equal(codes, [int(zeros[0])] * 2, "codes of 1e-9 and -1e-9: those of 0.0")


@task("19.2")
def test_groups_of_large_weights_in_float16(part: ModuleType) -> None:
    """Weights in float16 are rounded as the same numbers in float32 are, up to the largest."""
    weight = torch.full((8, 8), 1000.0).half()
    weight[:, 0], weight[:, 1] = -40000.0, 40000.0
    for symmetric in (True, False):
        start_script()
        note("# each row of the weight is -40000, 40000 and six times 1000")
        codec = watch(part.Int4(), "int4")
        scales, _ = codec.grid(weight, symmetric=symmetric)
        right = torch.full((8,), 80000.0 / 15).half()
        expect_close(scales, right, "scales of -40000 to 40000", rtol=2e-3, why=WIDE)
        back = codec.dequantize(codec.quantize(weight, 8, symmetric=symmetric))
        step = 1.01 * 80000.0 / 15
        furthest = float((back - weight.float()).abs().max())
        problem = (
            f"weights of up to 40000 come back {furthest:.5g} away, a step is {step / 1.01:.5g}"
        )
        expect(furthest <= step, problem, why=WIDE)


@task("19.2")
def test_codes_of_weights_in_float16(part: ModuleType) -> None:
    """A weight in float16 gets the nearest code, as in float32."""
    every = torch.arange(0x4900, dtype=torch.int16).view(torch.float16)  # from 0 to 10
    weight = every.repeat(2, 1)
    scales, zeros = torch.tensor([0.7, 1.3]).half(), torch.tensor([0, 2], dtype=torch.int32)
    got = part.Int4().codes(weight, scales, zeros)
    expect_nearest(weight, got, (scales, zeros), 0, 15, "all weights in float16 below 10", DIGITS)


@task("19.2")
def test_the_weight_of_groups_stays(part: ModuleType) -> None:
    """grid, codes and quantize change nothing in the weight that they are given."""
    codec = watch(part.Int4(), "int4")
    scales, zeros = torch.full((8,), 0.1).half(), torch.full((8,), 8, dtype=torch.int32)
    expect_stays(lambda weight: codec.codes(weight, scales, zeros), "codes")
    for symmetric in (True, False):
        expect_stays(
            lambda weight, symmetric=symmetric: codec.grid(weight, symmetric=symmetric),  # type: ignore[misc]
            f"grid(symmetric={symmetric})",
        )
        expect_stays(
            lambda weight, symmetric=symmetric: codec.quantize(weight, 8, symmetric=symmetric),  # type: ignore[misc]
            f"quantize(symmetric={symmetric})",
        )


@task("19.2")
def test_what_is_packed_and_unpacked(part: ModuleType) -> None:
    """pack stores contiguous scales, whatever it is given; unpack gives int32, as it went in."""
    codec = watch(part.Int4(), "int4")
    codes, zeros = torch.zeros(16, 24, dtype=torch.int32), torch.zeros(3, 16, dtype=torch.int32)
    scales = torch.arange(48).view(16, 3).half().t()
    got = codec.pack(codes, scales, zeros)
    problem = f"scales are a transposed view: their strides are {list(got.scales.stride())}"
    expect(got.scales.is_contiguous(), problem, why=DENSE)
    expect_close(got.scales, scales, "the scales that were given", rtol=0, atol=0)
    for name, numbers in zip(("codes", "zeros"), codec.unpack(packed(8, 8, 8)), strict=True):
        expect_equal(numbers.dtype, torch.int32, f"the dtype of {name} that unpack gives")
