"""Lab 19's reference where its suite does not go: other dtypes, a GPU, the engine's pool."""

import pytest
import torch

from solutions.quantization import Int4, Int8, fused_int4
from yaie.core.batch import KVLayerSpec
from yaie.worker.sizing import block_bytes

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_products_keep_the_dtype_of_their_input(dtype: torch.dtype) -> None:
    weight, x = torch.randn(24, 64), torch.randn(5, 64).to(dtype)
    four, eight = Int4().quantize(weight, 32), Int8().quantize(weight)
    for codec, packed in ((Int4(), four), (Int8(), eight)):
        y = codec.product(x, packed)  # type: ignore[attr-defined]
        right = x.float() @ codec.dequantize(packed).t()  # type: ignore[attr-defined]
        assert y.dtype == dtype
        assert torch.allclose(y.float(), right, rtol=2e-2, atol=2e-2 * float(right.abs().max()))


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 7, 64, 300])
@pytest.mark.parametrize("size", [16, 32, 128, 512])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_kernel_on_a_gpu(rows: int, size: int, dtype: torch.dtype) -> None:
    weight = Int4().quantize(torch.randn(200, 512, device=DEVICE), size, symmetric=False)
    x = torch.randn(rows, 512, device=DEVICE).to(dtype)
    right = x.float() @ Int4().dequantize(weight).t()
    got = fused_int4().product(x, weight)
    assert got.dtype == dtype
    tolerance = 1e-4 if dtype == torch.float32 else 1e-2
    assert torch.allclose(
        got.float(), right, rtol=tolerance, atol=tolerance * float(right.abs().max())
    )


def test_a_pool_in_int8_takes_about_half_of_one_in_16_bits() -> None:
    tutor, large = [KVLayerSpec(4, 32)] * 8, [KVLayerSpec(8, 128)] * 32
    for layers, share in ((tutor, 34 / 64), (large, 130 / 256)):
        wide = block_bytes(layers, 16, torch.bfloat16)
        assert block_bytes(layers, 16, torch.bfloat16, int8=True) == share * wide
