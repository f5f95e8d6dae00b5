"""The C++ library's products on packed weights are lab 19's."""

import pytest
import torch
from torch import Tensor

from solutions.quantization import Int4, Int8
from yaie.backends.cpu import build
from yaie.backends.cpu.blocks import DTYPES, InterleavedBlocks
from yaie.backends.cpu.gemm import CpuGemm
from yaie.backends.cpu.library import library
from yaie.core.gemm import PackedGemm
from yaie.core.quantized import Int8Weight

pytestmark = pytest.mark.skipif(bool(build.missing()), reason=build.missing())
PLAIN = PackedGemm(Int8().product, Int4().product)
SHAPES = [(8, 32), (24, 96), (200, 64), (72, 768)]
"""Outputs and inputs: tiles that are not full, and several of them."""
MANY = 300
"""Rows."""
ROUNDING = {torch.float32: 1e-4, torch.bfloat16: 2.0**-6}


def _never(x: Tensor, weight: object) -> Tensor:
    raise AssertionError("lab 19 was asked")


def _same(got: Tensor, x: Tensor, expected: Tensor) -> None:
    """To what sums in another order differ by; `expected` was computed in float32."""
    assert got.dtype == x.dtype
    bound = ROUNDING[x.dtype]
    torch.testing.assert_close(got.float(), expected, rtol=bound, atol=bound * x.shape[1] ** 0.5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 3, 7, 16, 24, 33, MANY])
@pytest.mark.parametrize("shape", SHAPES)
def test_products_are_those_of_lab_19(
    rows: int, shape: tuple[int, int], dtype: torch.dtype
) -> None:
    weight = torch.randn(shape)
    x = torch.randn(rows, 2 * shape[1])[:, : shape[1]].to(dtype)
    ours = CpuGemm(library(), PackedGemm(_never, _never))
    for symmetric in (True, False):
        eight = Int8().quantize(weight, symmetric=symmetric)
        got = ours.int8(x, ours.arranged_int8(eight, dtype))
        _same(got, x, PLAIN.int8(x.float(), eight))
        for group in {32, 64, 128, 256, shape[1]}:  # one of them becomes several of the library's
            if shape[1] % group:
                continue
            four = Int4().quantize(weight, group, symmetric=symmetric)
            got = ours.int4(x, ours.arranged(four, dtype))
            _same(got, x, PLAIN.int4(x.float(), four))


@pytest.mark.parametrize("rows", [2, 20, MANY])
def test_threads_do_not_change_a_bit(rows: int) -> None:
    x, weight = torch.randn(rows, 64), torch.randn(200, 64)
    ours = CpuGemm(library(), PLAIN)
    four = ours.arranged(Int4().quantize(weight, 32), x.dtype)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = ours.int4(x, four)
        torch.set_num_threads(2)
        assert torch.equal(ours.int4(x, four), alone)
    finally:
        torch.set_num_threads(before)


def test_an_arranged_weight_is_no_larger() -> None:
    ours, weight = CpuGemm(library(), PLAIN), torch.randn(256, 512)
    four, eight = Int4().quantize(weight, 64), Int8().quantize(weight)
    tiled = ours.arranged(four, torch.float32), ours.arranged_int8(eight, torch.bfloat16)
    assert all(isinstance(one, InterleavedBlocks) for one in tiled)
    assert sum(one.nbytes for one in tiled) < 1.02 * (four.nbytes + eight.nbytes)


def test_what_it_does_not_take_is_lab_19s() -> None:
    ours, weight = CpuGemm(library(), PLAIN), torch.randn(16, 32)
    four, eight = Int4().quantize(weight, 32), Int8().quantize(weight)
    double = Int8Weight(eight.codes, eight.scales.double())
    assert ours.arranged(four, torch.float16) is four
    assert ours.arranged_int8(eight, torch.float16) is eight
    assert ours.arranged_int8(double, torch.float32) is double
    odd = Int8().quantize(torch.randn(16, 40))
    assert ours.arranged_int8(odd, torch.float32) is odd
    small = Int4().quantize(weight, 16)
    assert ours.arranged(small, torch.float32) is small
    for x in (torch.randn(2, 32), torch.randn(2, 32).bfloat16()):
        assert torch.equal(ours.int4(x, four), PLAIN.int4(x, four))
        assert torch.equal(ours.int8(x, eight), PLAIN.int8(x, eight))
    tiled, none = ours.arranged(four, torch.float32), torch.zeros(0, 32)
    assert ours.int4(none, tiled).shape == (0, 16)
