"""Products with blocks of a GGUF, or of MXFP4, are those of the unpacked weights."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants
from torch import Tensor

from solutions.quantization import Int8
from solutions.transformer_ops import TransformerOps
from tests.models.gguf.random_blocks import random_bytes
from yaie.backends.cpu import build
from yaie.backends.cpu.blocks import DTYPES, STRIP, VALUES, CpuBlockGemm, InterleavedBlocks
from yaie.backends.cpu.fused import CpuFusedGemm
from yaie.backends.cpu.gemm import CpuGemm
from yaie.backends.cpu.library import library
from yaie.backends.cpu.ops import CpuOps
from yaie.core.gemm import PackedGemm, PlainWeight
from yaie.models.mxfp4 import GGML
from yaie.system.processor import flags

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


def arranged(
    gemm: CpuBlockGemm, number: int, outputs: int, inputs: int = INPUTS
) -> tuple[InterleavedBlocks, Tensor]:
    blocks, numbers = weight(number, outputs, inputs)
    return gemm.arranged(blocks, number, inputs), numbers


def product(gemm: CpuBlockGemm, x: Tensor, held: InterleavedBlocks) -> Tensor:
    out = x.new_empty(len(x), sum(held.sizes))
    gemm.product(x, held, out)
    return out


def assert_near(got: Tensor, x: Tensor, numbers: Tensor, share: float) -> None:
    """Each product within a share of the sum of its terms' sizes."""
    x, weights = x.double(), numbers.double().t()
    bound = share * (x.abs() @ weights.abs()) + 1e-37  # what is less than the least normal number
    assert ((got.double() - x @ weights).abs() <= bound).all()


EXACT, BY_ONEDNN, ROUNDED = 4e-7, 1e-6, 2**-8
"""The shares: of float32 by the library and by oneDNN, and of bfloat16, to which results are rounded."""


@pytest.mark.parametrize("number", sorted(VALUES))
@pytest.mark.parametrize("outputs", [1, 37, 64])
def test_products_are_those_of_the_numbers(gemm: CpuBlockGemm, number: int, outputs: int) -> None:
    held, numbers = arranged(gemm, number, outputs)
    for rows in ROWS:
        x = torch.randn(rows, INPUTS)
        around = torch.full((rows, outputs + 5), 7.0)
        gemm.product(x, held, around[:, 2 : outputs + 2])
        assert_near(around[:, 2 : outputs + 2], x, numbers, EXACT)
        assert (around[:, :2] == 7).all()
        assert (around[:, outputs + 2 :] == 7).all()


@pytest.mark.parametrize("number", sorted(VALUES))
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_products_of_rounded_rows(gemm: CpuBlockGemm, number: int, dtype: torch.dtype) -> None:
    held, numbers = arranged(gemm, number, 40)
    for rows in (1, 5, 30):
        x = torch.randn(rows, INPUTS).to(dtype)
        assert_near(product(gemm, x, held), x, numbers, ROUNDED)


@pytest.mark.parametrize("number", sorted(VALUES))
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_unpacked_for_onednn(number: int, dtype: torch.dtype) -> None:
    """As where it has faster instructions."""
    gemm = CpuBlockGemm(library())
    gemm.most_rows = dict.fromkeys(DTYPES, 0)
    held = gemm.stacked([arranged(gemm, number, outputs)[0] for outputs in (37, 64)])
    numbers = torch.cat([weight(number, outputs)[1] for outputs in (37, 64)])
    x = torch.randn(70, INPUTS).to(dtype)
    share = 2 * ROUNDED if dtype == torch.bfloat16 else BY_ONEDNN
    assert_near(product(gemm, x, held), x, numbers, share)


def test_a_weight_of_several_strips() -> None:
    gemm = CpuBlockGemm(library())
    gemm.most_rows = dict.fromkeys(DTYPES, 0)
    held, numbers = arranged(gemm, 3, 2 * STRIP // 2048 + 3, 2048)
    x = torch.randn(40, 2048)
    assert_near(product(gemm, x, held), x, numbers, BY_ONEDNN)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_is_the_same_alone_and_among_others(gemm: CpuBlockGemm, dtype: torch.dtype) -> None:
    held = arranged(gemm, 12, 37)[0]
    x = torch.randn(30, INPUTS).to(dtype)
    together = product(gemm, x, held)
    alone = torch.cat([product(gemm, row[None], held) for row in x])
    assert torch.equal(together, alone)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [0.0, 1e-45, 1e-38, 1e-30, 1e30])
def test_numbers_of_any_size(gemm: CpuBlockGemm, size: float, dtype: torch.dtype) -> None:
    held, numbers = arranged(gemm, 3, 37)
    x = (torch.randn(3, INPUTS) * size).to(dtype)
    share = ROUNDED if dtype == torch.bfloat16 else EXACT
    assert_near(product(gemm, x, held), x, numbers, share)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_none_is_seen_in_its_row_alone(
    gemm: CpuBlockGemm, bad: float, dtype: torch.dtype
) -> None:
    held = arranged(gemm, 2, 37)[0]
    x = torch.randn(3, INPUTS).to(dtype)
    sound = product(gemm, x, held)
    x[1, 77] = bad
    found = product(gemm, x, held)
    assert not found[1].isfinite().any()
    assert torch.equal(found[::2], sound[::2])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("rows", [1, 5, 20])
def test_fused_products_are_the_separate_operations(
    gemm: CpuBlockGemm, rows: int, has_bias: bool, dtype: torch.dtype
) -> None:
    """To the last bit, over parts of several kinds."""
    fused, ops = CpuFusedGemm(gemm), CpuOps(library(), TransformerOps(), None)
    parts = [
        arranged(gemm, number, outputs)[0] for number, outputs in ((12, 48), (14, 20), (3, 12))
    ]
    held = gemm.stacked(parts)
    bias = torch.randn(80).to(dtype) if has_bias else None
    weight = PlainWeight(held, bias)
    x, gain = torch.randn(rows, INPUTS).to(dtype), torch.rand(INPUTS).to(dtype)
    assert fused.takes(x, weight)

    def separate(x: Tensor) -> Tensor:
        y = torch.cat([product(gemm, x, part) for part in parts], 1)
        return y if bias is None else y + bias

    assert torch.equal(fused.product(x, weight), separate(x))
    normed = ops.rms_norm(x, gain, 1e-5)
    assert torch.equal(fused.after_norm(x, gain, 1e-5, weight), separate(normed))
    wanted = ops.silu_mul(separate(normed))
    assert torch.equal(fused.gated(x, gain, 1e-5, weight), wanted)
    residual = torch.randn(rows, 80).to(dtype)
    wanted = residual + separate(x)
    assert torch.equal(fused.onto(x, weight, residual), wanted)


def test_fused_products_take_what_is_in_blocks_alone(gemm: CpuBlockGemm) -> None:
    fused, held = CpuFusedGemm(gemm), arranged(gemm, 2, 16)[0]
    x = torch.randn(1, INPUTS)
    assert not fused.takes(x, PlainWeight(torch.randn(16, INPUTS), None))
    assert not fused.takes(x.double(), PlainWeight(held, None))


def numbers_of(gemm: CpuBlockGemm, held: InterleavedBlocks, dtype: torch.dtype) -> Tensor:
    out = torch.empty(held.in_features, sum(held.sizes), dtype=dtype)
    gemm.numbers(held, out)
    return out.t()


def test_every_code_and_scale_of_mxfp4(gemm: CpuBlockGemm) -> None:
    codes = np.tile(np.arange(256, dtype=np.uint8), 255).reshape(-1, 16)
    blocks = np.concatenate([np.arange(255, dtype=np.uint8).repeat(16)[:, None], codes], 1)
    held = gemm.arranged(torch.from_numpy(blocks).view(255, -1), GGML, 16 * 32)
    with np.errstate(over="ignore"):  # the largest number times the largest scale
        wanted = torch.from_numpy(quants.dequantize(blocks, GGMLQuantizationType.MXFP4))
    assert torch.equal(numbers_of(gemm, held, torch.float32).reshape(-1, 32), wanted)


@pytest.mark.parametrize("number", sorted(VALUES))
def test_numbers_are_those_of_the_gguf_package(gemm: CpuBlockGemm, number: int) -> None:
    held, numbers = arranged(gemm, number, 131)
    for dtype, share in ((torch.float32, 1e-6), (torch.bfloat16, 2**-8)):
        found = numbers_of(gemm, held, dtype)
        assert (found.float() - numbers).abs().max() <= share * numbers.abs().max()


@pytest.mark.nightly
@pytest.mark.skipif("avx2" not in flags(), reason="needs an x86 processor with AVX2")
@pytest.mark.parametrize("level", ["skylake-avx512", "x86-64-v3", "x86-64-v2"])
def test_products_with_fewer_instructions(level: str) -> None:
    """AVX-512 and AVX2, which multiply bytes in pairs, and no instructions for it at all."""
    if level == "skylake-avx512" and "avx512bw" not in flags():
        pytest.skip("needs AVX-512")
    gemm = CpuBlockGemm(library((f"-march={level}",)))
    assert not library((f"-march={level}",)).has_dots
    eight = CpuGemm(
        library((f"-march={level}",)), PackedGemm(lab_19_is_not_asked, lab_19_is_not_asked)
    )
    for number in VALUES:
        held, numbers = arranged(gemm, number, 37)
        for rows in (1, 5):
            for dtype in DTYPES:
                x = torch.randn(rows, INPUTS).to(dtype)
                share = ROUNDED if dtype == torch.bfloat16 else EXACT
                assert_near(product(gemm, x, held), x, numbers, share)
    weight = Int8().quantize(torch.randn(37, INPUTS), symmetric=False)
    x = torch.randn(3, INPUTS)
    wanted = (weight.codes.float() - weight.zeros.float()[:, None]) * weight.scales.float()[:, None]
    assert_near(eight.int8(x, eight.arranged_int8(weight, x.dtype)), x, wanted, 4 * EXACT)


def lab_19_is_not_asked(x: Tensor, weight: object) -> Tensor:
    raise AssertionError("lab 19 was asked")
