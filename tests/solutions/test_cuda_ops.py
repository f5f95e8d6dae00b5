"""Lab 14: the operations of a layer against float64, over shapes that no tile fits."""

from typing import Any

import pytest
import torch
from torch import Tensor

from grader.kit import kernels as exact
from grader.kit.cuda_work import work_of
from solutions.cuda_ops import LayerKernels
from solutions.cuda_ops.naive import NaiveLayerKernels
from solutions.cuda_ops.sums import block_sums, warp_sums
from solutions.transformer_ops import TransformerOps

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
KERNELS, NAIVE = LayerKernels(), NaiveLayerKernels()
CPU_ROWS = [(1, 64), (3, 80), (2, 96), (5, 128), (2, 256), (3, 1), (2, 37), (1, 4096), (1, 8200)]
CPU_ROWS += [(0, 64), (33, 16), (1, 5003)]
GPU_ROWS = [
    (8192, 4096),
    (513, 8192),
    (3, 16384),
    (2, 40000),
    (7, 5003),
    (1, 128),
    (0, 64),
    (4097, 96),
]
# tokens, heads, key heads, head size, half of the rotary dimension
CPU_HEADS = [(1, 4, 2, 64, 32), (3, 3, 3, 80, 40), (2, 8, 1, 96, 48), (5, 4, 2, 128, 64)]
CPU_HEADS += [(2, 2, 1, 256, 128), (3, 2, 1, 64, 12), (2, 2, 1, 36, 9), (0, 2, 1, 64, 32)]
GPU_HEADS = [(8192, 32, 8, 128, 64), (1, 16, 8, 128, 64), (257, 12, 4, 80, 40), (33, 8, 1, 96, 24)]
GPU_HEADS += [(100, 4, 4, 256, 128), (65, 3, 1, 36, 9), (0, 2, 1, 64, 32)]


def rand(*shape: int, dtype: torch.dtype, device: str = "cpu", seed: int = 0) -> Tensor:
    numbers = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return numbers.to(dtype).to(device)


def near(got: Tensor, right: Tensor, dtype: torch.dtype, slack: int = 8) -> None:
    assert got.dtype == dtype
    if right.numel():
        error = (got.double().cpu() - right.double()).abs() / (1 + right.double().abs())
        assert float(error.max()) < slack * torch.finfo(dtype).eps


def check_rows(
    kernels: Any, shape: tuple[int, int], dtype: torch.dtype, on: str, offset: int
) -> None:
    count, d = shape
    # One thread adds up a whole row, number by number: the error grows with the row.
    slack = 64 if kernels is NAIVE else 8
    wide = rand(count, 2 * d + 8, dtype=dtype, device=on)
    x, gated = wide[:, offset : d + offset], wide[:, offset : 2 * d + offset]
    weight, residual = (rand(*s, dtype=dtype, device=on, seed=1) for s in ((d,), (count, d)))
    right = exact.rms_norm(x.cpu(), weight.cpu(), 1e-5)
    near(kernels.rms_norm(x, weight, 1e-5), right, dtype, slack)
    near(kernels.silu_mul(gated), exact.silu_mul(gated.cpu()), dtype)
    total = (x.double() + residual.double()).to(dtype).cpu()
    kernels.fused_add_rms_norm(x, residual, weight, 1e-5)
    near(residual, total, dtype)
    near(x, exact.rms_norm(residual.cpu(), weight.cpu(), 1e-5), dtype, slack)


def check_heads(kernels: Any, shape: tuple[int, ...], dtype: torch.dtype, on: str) -> None:
    tokens, heads, kv_heads, d, half = shape
    product = rand(tokens, (heads + 2 * kv_heads) * d, dtype=dtype, device=on)
    parts = product.split([heads * d, kv_heads * d, kv_heads * d], dim=1)
    q, k, v = (part.unflatten(1, (-1, d)) for part in parts)
    cos, sin = (table.to(on) for table in exact.rotary_tables(tokens + 9, half))
    positions = torch.randperm(tokens + 9, generator=torch.Generator().manual_seed(1))[:tokens]
    slots = torch.randperm(tokens + 30, generator=torch.Generator().manual_seed(2))[:tokens] - 2
    shape = ((tokens + 30) // 16 + 1, 16, kv_heads, d)
    keys, values = (rand(*shape, dtype=dtype, device=on, seed=s) for s in (3, 4))
    right = [exact.rope(x.cpu(), positions, cos.cpu(), sin.cpu()) for x in (q, k)]
    stored = exact.store_kv(right[1].to(dtype), v.cpu(), keys.cpu(), values.cpu(), slots)
    before = product.clone()
    where = positions.to(on)
    kernels.rope_and_store(q, k, v, where, cos, sin, keys, values, slots.to(on))
    near(q, right[0], dtype)
    near(keys, stored[0], dtype)
    near(values, stored[1], dtype)
    assert torch.equal(product[:, heads * d :], before[:, heads * d :])
    product.copy_(before)
    kernels.rope(q, k, where, cos, sin)
    near(q, right[0], dtype)
    near(k, right[1], dtype)
    assert torch.equal(v.flatten(1), before[:, (heads + kv_heads) * d :])


@pytest.mark.parametrize("kernels", [KERNELS, NAIVE])
@pytest.mark.parametrize("shape", CPU_ROWS)
def test_rows_are_those_of_float64(kernels: Any, shape: tuple[int, int]) -> None:
    dtype = DTYPES[sum(shape) % 3]
    for offset in (0, 1, 8):
        check_rows(kernels, shape, dtype, "cpu", offset)


@pytest.mark.parametrize("kernels", [KERNELS, NAIVE])
@pytest.mark.parametrize("shape", CPU_HEADS)
def test_heads_are_those_of_float64(kernels: Any, shape: tuple[int, ...]) -> None:
    check_heads(kernels, shape, DTYPES[sum(shape) % 3], "cpu")


def test_heads_of_a_product_are_normed_where_they_lie() -> None:
    product, weight = rand(3, 7 * 64, dtype=torch.bfloat16), rand(64, dtype=torch.bfloat16, seed=1)
    q = product[:, : 4 * 64].view(3, 4, 64)
    near(KERNELS.rms_norm(q, weight, 1e-6), exact.rms_norm(q, weight, 1e-6), torch.bfloat16)


def test_roundings_are_those_of_lab_2() -> None:
    ops = TransformerOps()
    x, weight = rand(4, 256, dtype=torch.bfloat16), rand(256, dtype=torch.bfloat16, seed=1)
    same = KERNELS.rms_norm(x, weight, 1e-6) == ops.rms_norm(x, weight, 1e-6)
    assert same.float().mean() > 0.995
    same = KERNELS.silu_mul(x) == ops.silu_mul(x)
    assert same.float().mean() > 0.995


def test_sums_reach_every_thread() -> None:
    x = rand(3, 96, dtype=torch.float32)
    assert torch.allclose(warp_sums(x.view(9, 32)), x.view(9, 32).sum(1, keepdim=True), atol=1e-5)
    sums = block_sums(x)
    assert torch.allclose(sums[..., 0], x.sum(1, keepdim=True), atol=1e-5)
    assert torch.allclose(sums[..., 1], x.square().sum(1, keepdim=True), atol=1e-5)


def test_a_tuned_norm_reads_once_and_wide_what_the_naive_one_reads_twice() -> None:
    x, weight = rand(32, 512, dtype=torch.bfloat16), rand(512, dtype=torch.bfloat16, seed=1)
    tuned = work_of(lambda: KERNELS.rms_norm(x, weight, 1e-5))
    naive = work_of(lambda: NAIVE.rms_norm(x, weight, 1e-5))
    assert tuned.loads.bytes == 2 * 32 * 1024
    assert tuned.stores.count == 32 * 1024 // 16
    assert naive.loads.bytes == 3 * 32 * 1024 or naive.loads.bytes == 4 * 32 * 1024
    assert naive.loads.sectors > 5 * tuned.loads.sectors


def test_rows_that_are_not_contiguous_are_refused() -> None:
    x = torch.zeros(4, 16)[:, ::2]
    with pytest.raises(ValueError, match="not contiguous"):
        KERNELS.silu_mul(x)


@pytest.mark.gpu
@pytest.mark.parametrize("kernels", [KERNELS, NAIVE])
@pytest.mark.parametrize("shape", GPU_ROWS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_on_a_gpu(kernels: Any, shape: tuple[int, int], dtype: torch.dtype) -> None:
    for offset in (0, 1, 8):
        check_rows(kernels, shape, dtype, "cuda", offset)


@pytest.mark.gpu
@pytest.mark.parametrize("kernels", [KERNELS, NAIVE])
@pytest.mark.parametrize("shape", GPU_HEADS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_heads_on_a_gpu(kernels: Any, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    check_heads(kernels, shape, dtype, "cuda")
