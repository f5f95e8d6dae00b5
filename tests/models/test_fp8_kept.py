"""Weights in FP8 stay in eight bits where a backend has a product for them."""

import pytest
import torch
from torch import Tensor

from yaie.core.gemm import PackedGemm
from yaie.core.quantized import Fp8Weight
from yaie.models.layout import stacked
from yaie.models.linear import make_linear
from yaie.models.packing import WHOLE, PackedFormat
from yaie.models.schemes import Packing, Scheme

CPU = torch.device("cpu")
SIZES, INPUTS = [32, 8, 8], 48
FORMATS = {"a scale for each output": (1, WHOLE), "one scale": (0, 0)}


def refuse(*_: object) -> Tensor:
    raise AssertionError("not asked for")


def products(fuses: bool = True) -> PackedGemm:
    """With the naive product: what the codes stand for, multiplied."""

    def fp8(x: Tensor, weight: Fp8Weight) -> Tensor:
        return x @ (weight.codes.to(x.dtype) * weight.scales.to(x.dtype)[:, None]).T

    return PackedGemm(
        refuse, refuse, fp8=fp8, takes_fp8=lambda outputs, inputs, dtype: inputs == INPUTS,
        fuses=lambda weight: fuses,
    )  # fmt: skip


def filled(
    block: tuple[int, int], found: PackedGemm, *, bias: bool = False, inputs: int = INPUTS
) -> Scheme:
    packing = Packing(PackedFormat("float-quantized", 8, block=block), found)
    linear = make_linear(stacked(inputs, SIZES, bias=bias), torch.float32, CPU, packing=packing)
    g = torch.Generator().manual_seed(0)
    for name, place in sorted(linear.destinations("q", "k", "v").items()):
        numbers = torch.randn(place.shape, generator=g)
        if name.endswith(".weight"):
            numbers = (8 * numbers).to(torch.float8_e4m3fn)
        place.fill(numbers.abs() if name.endswith("_scale") else numbers)
    return linear


@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
@pytest.mark.parametrize("block", FORMATS.values(), ids=FORMATS)
def test_is_the_weight_multiplied_out(block: tuple[int, int], bias: bool) -> None:
    kept = filled(block, products(), bias=bias)
    out = filled(block, PackedGemm(refuse, refuse), bias=bias)
    x = torch.randn(3, INPUTS, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(kept(x), out(x))
    torch.testing.assert_close(kept.in_float32(x), out.in_float32(x))
    plain = kept.plain
    assert plain is not None
    assert isinstance(plain.weight, Fp8Weight)
    assert plain.weight.codes.dtype == torch.float8_e4m3fn
    assert plain.weight.scales.shape == (sum(SIZES),)
    assert (plain.bias is not None) == bias


def test_only_what_is_fused_is_plain() -> None:
    assert filled((1, WHOLE), products(fuses=False)).plain is None


def test_memory_is_told_as_it_is_kept() -> None:
    def bytes_of(block: tuple[int, int], found: PackedGemm) -> int:
        packing = Packing(PackedFormat("float-quantized", 8, block=block), found)
        linear = make_linear(stacked(INPUTS, SIZES), torch.float32, CPU, packing=packing)
        return sum(place.weight_bytes for place in linear.destinations("q", "k", "v").values())

    assert bytes_of((1, WHOLE), products()) == sum(SIZES) * INPUTS
    assert bytes_of((1, WHOLE), PackedGemm(refuse, refuse)) == 4 * sum(SIZES) * INPUTS


def test_blocks_and_sizes_that_no_product_takes_are_multiplied_out() -> None:
    for block, inputs in (((16, 16), INPUTS), ((1, WHOLE), 64)):
        linear = filled(block, products(), inputs=inputs)
        assert linear.plain is None or isinstance(linear.plain.weight, Tensor)
        assert linear(torch.ones(2, inputs)).shape == (2, sum(SIZES))
