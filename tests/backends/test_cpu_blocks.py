"""Products with blocks of a GGUF, or of MXFP4, are those of the unpacked weights."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants
from torch import Tensor

from tests.models.gguf.tiny_ggufs import random_bytes
from yaie.backends.cpu import build
from yaie.backends.cpu.blocks import KINDS, STRIP, CpuBlockGemm
from yaie.backends.cpu.library import library
from yaie.models.mxfp4 import GGML

pytestmark = pytest.mark.skipif(bool(build.missing()), reason=build.missing())
INPUTS = 512
ROWS = (1, 2, 3, 4, 7, 8, 9, 40, 70)


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    with torch.inference_mode():
        yield


@pytest.fixture(scope="module")
def gemm() -> CpuBlockGemm:
    return CpuBlockGemm(library())


def weight(number: int, outputs: int, inputs: int = INPUTS) -> tuple[Tensor, Tensor]:
    """(blocks, the numbers in them by the gguf package)."""
    kind = GGMLQuantizationType(number)
    count = outputs * inputs // GGML_QUANT_SIZES[kind][0]
    blocks = random_bytes(np.random.default_rng(number), kind, count, 0.01).reshape(outputs, -1)
    return torch.from_numpy(blocks), torch.from_numpy(quants.dequantize(blocks, kind))


@pytest.mark.parametrize("number", sorted(KINDS))
@pytest.mark.parametrize("outputs", [1, 37, 64])
def test_products_are_those_of_the_numbers(gemm: CpuBlockGemm, number: int, outputs: int) -> None:
    blocks, numbers = weight(number, outputs)
    for rows in ROWS:
        x = torch.randn(rows, INPUTS)
        around = torch.full((rows, outputs + 5), 7.0)
        gemm.product(x, blocks, number, around[:, 2 : outputs + 2])
        wanted = x.double() @ numbers.double().t()
        got = around[:, 2 : outputs + 2]
        assert (got - wanted).abs().max() <= 1e-5 * wanted.abs().max()
        assert (around[:, :2] == 7).all()
        assert (around[:, outputs + 2 :] == 7).all()


@pytest.mark.parametrize("number", sorted(KINDS))
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_products_of_rounded_rows(gemm: CpuBlockGemm, number: int, dtype: torch.dtype) -> None:
    blocks, numbers = weight(number, 40)
    for rows in (1, 5, 30):
        x = torch.randn(rows, INPUTS).to(dtype)
        out = torch.empty(rows, 40, dtype=dtype)
        gemm.product(x, blocks, number, out)
        wanted = x.float() @ numbers.t()
        assert (out.float() - wanted).abs().max() <= 1e-2 * wanted.abs().max()


def test_a_weight_of_several_strips(gemm: CpuBlockGemm) -> None:
    outputs = 2 * STRIP // 2048 + 3
    blocks, numbers = weight(3, outputs, 2048)
    x = torch.randn(20, 2048)
    out = torch.empty(20, outputs)
    gemm.product(x, blocks, 3, out)
    wanted = x @ numbers.t()
    assert (out - wanted).abs().max() <= 1e-4 * wanted.abs().max()


def test_every_code_and_scale_of_mxfp4(gemm: CpuBlockGemm) -> None:
    codes = np.tile(np.arange(256, dtype=np.uint8), 255).reshape(-1, 16)
    blocks = np.concatenate([np.arange(255, dtype=np.uint8).repeat(16)[:, None], codes], 1)
    out = torch.empty(255, 16 * 32)
    gemm.unpack(torch.from_numpy(blocks), GGML, out)
    with np.errstate(over="ignore"):  # the largest number times the largest scale
        wanted = torch.from_numpy(quants.dequantize(blocks, GGMLQuantizationType.MXFP4))
    assert torch.equal(out.view(-1, 32), wanted)


@pytest.mark.parametrize("number", sorted(KINDS))
def test_numbers_are_those_of_the_gguf_package(gemm: CpuBlockGemm, number: int) -> None:
    blocks, numbers = weight(number, 131)
    for dtype, share in ((torch.float32, 1e-6), (torch.bfloat16, 2**-8)):
        out = torch.empty(131, INPUTS, dtype=dtype)
        gemm.unpack(blocks, number, out)
        assert (out.float() - numbers).abs().max() <= share * numbers.abs().max()
