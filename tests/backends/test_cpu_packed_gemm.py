"""The C++ library's products on packed weights are lab 19's."""

import pytest
import torch
from torch import Tensor

from solutions.quantization import Int4, Int8
from yaie.backends.cpu import build
from yaie.backends.cpu.gemm import FEW_ROWS, CpuGemm
from yaie.backends.cpu.library import library
from yaie.core.gemm import PackedGemm
from yaie.core.quantized import Int4Weight, Int8Weight

pytestmark = pytest.mark.skipif(bool(build.missing()), reason=build.missing())
PLAIN = PackedGemm(Int8().product, Int4().product)


def _never(x: Tensor, weight: Int8Weight | Int4Weight) -> Tensor:
    raise AssertionError("lab 19 was asked")


@pytest.mark.parametrize("rows", [1, 3, FEW_ROWS])
@pytest.mark.parametrize("shape", [(8, 8), (24, 40), (200, 64), (72, 768)])
def test_products_are_those_of_lab_19(rows: int, shape: tuple[int, int]) -> None:
    weight = torch.randn(shape)
    x = torch.randn(rows, 2 * shape[1])[:, : shape[1]]
    ours = CpuGemm(library(), PackedGemm(_never, _never))
    eight = Int8().quantize(weight)
    torch.testing.assert_close(ours.int8(x, eight), PLAIN.int8(x, eight), rtol=1e-4, atol=1e-4)
    for symmetric in (True, False):
        four = Int4().quantize(weight, 8, symmetric=symmetric)
        torch.testing.assert_close(ours.int4(x, four), PLAIN.int4(x, four), rtol=1e-4, atol=1e-4)


def test_what_it_does_not_take_is_lab_19s() -> None:
    ours, weight = CpuGemm(library(), PLAIN), torch.randn(16, 32)
    four, eight = Int4().quantize(weight, 16), Int8().quantize(weight, symmetric=False)
    for x in (torch.randn(FEW_ROWS + 1, 32), torch.randn(2, 32).bfloat16(), torch.zeros(0, 32)):
        assert torch.equal(ours.int4(x, four), PLAIN.int4(x, four))
    x = torch.randn(2, 32)
    assert torch.equal(ours.int8(x, eight), PLAIN.int8(x, eight))
