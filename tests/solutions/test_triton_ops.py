"""Lab 9: the tuned kernels and the naive ones against float64, and the tuned ones against lab 2."""

import os
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from grader.kit import kernels
from grader.kit.kernels import expect_near, random
from grader.kit.triton_watch import watching
from solutions.transformer_ops import TransformerOps
from solutions.triton_ops import LayerKernels
from solutions.triton_ops.launch import LONGEST_ROW, norm_tile
from solutions.triton_ops.naive import NaiveLayerKernels, add
from tests.solutions.properties import effort

BOTH = [LayerKernels(), NaiveLayerKernels()]
DTYPES = [torch.float32, torch.float16]
SHAPES = [(1, 1), (3, 7), (64,), (33, 100), (2, 3, 80), (5, 2, 2, 96), (2, 1025), (0, 64)]
HEADS = [(1, 1, 64, 32), (6, 2, 80, 40), (4, 4, 96, 24), (5, 1, 128, 64), (3, 3, 256, 128)]


@pytest.fixture(autouse=True)
def _watched() -> Iterator[None]:
    """Every address is checked, and the interpreter is quicker on the way."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        yield
        return
    with watching():
        yield


@pytest.fixture(params=BOTH, ids=["tuned", "naive"])
def ops(request):
    return request.param


def on(device: str, *tensors: Tensor) -> list[Tensor]:
    return [tensor.to(device) for tensor in tensors]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_rms_norm_is_its_definition(ops, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x, weight = random(*shape, dtype=dtype), random(shape[-1], seed=1, dtype=dtype)
    before = x.clone()
    got = ops.rms_norm(x, weight, 1e-5)
    expect_near(got, kernels.rms_norm(x, weight, 1e-5), dtype, "rms_norm")
    assert torch.equal(x, before)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_fused_add_rms_norm_is_an_addition_and_a_norm(ops, shape, dtype: torch.dtype) -> None:
    x, residual = random(*shape, dtype=dtype), random(*shape, seed=1, dtype=dtype)
    weight = random(shape[-1], seed=2, dtype=dtype)
    normed, total = kernels.fused_add_rms_norm(x, residual, weight, 1e-5)
    got = ops.fused_add_rms_norm(x, residual, weight, 1e-5)
    assert got[0] is x
    assert got[1] is residual
    expect_near(x, normed, dtype, "the norm")
    assert torch.equal(residual.double(), total)


def test_a_row_that_registers_cannot_hold_is_read_twice() -> None:
    d = LONGEST_ROW + 3
    x, residual, weight = (random(2, d, seed=seed) for seed in range(3))
    weight = weight[0]
    expect_near(
        LayerKernels().rms_norm(x, weight, 1e-5),
        kernels.rms_norm(x, weight, 1e-5),
        x.dtype,
        "a long norm",
    )
    normed, total = kernels.fused_add_rms_norm(x, residual, weight, 1e-5)
    LayerKernels().fused_add_rms_norm(x, residual, weight, 1e-5)
    expect_near(x, normed, x.dtype, "a long norm of a sum")
    assert torch.equal(residual.double(), total)


def test_a_norm_of_heads_leaves_them_where_they_lie() -> None:
    qkv, weight = random(7, 8 * 16), random(16, seed=1)
    heads = qkv[:, 32:96].view(7, 4, 16)
    got = LayerKernels().rms_norm(heads, weight, 1e-5)
    assert got.is_contiguous()
    expect_near(got, kernels.rms_norm(heads, weight, 1e-5), qkv.dtype, "the norm of a view")


def test_a_sum_of_strided_rows() -> None:
    x, residual = random(5, 40)[:, 3:23], random(5, 30, seed=1)[:, :20]
    weight = random(20, seed=2)
    normed, total = kernels.fused_add_rms_norm(x, residual, weight, 1e-5)
    LayerKernels().fused_add_rms_norm(x, residual, weight, 1e-5)
    expect_near(x, normed, x.dtype, "the norm")
    assert torch.equal(residual.double(), total)


def test_rounding_is_that_of_lab_2() -> None:
    """Only the order of a sum differs, which seldom decides a rounding."""
    x, weight = random(8, 300, dtype=torch.float16), random(300, seed=1, dtype=torch.float16)
    ours, theirs = LayerKernels(), TransformerOps()
    same = ours.rms_norm(x, weight, 1e-5) == theirs.rms_norm(x, weight, 1e-5)
    assert same.float().mean() > 0.99
    same = ours.silu_mul(x) == theirs.silu_mul(x)
    assert same.float().mean() > 0.99


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(1, 2), (3, 14), (2, 3, 130), (2, 2050), (0, 8)], ids=str)
def test_silu_mul_is_its_definition(ops, shape, dtype: torch.dtype) -> None:
    x = random(*shape, dtype=dtype)
    expect_near(ops.silu_mul(x), kernels.silu_mul(x), dtype, "silu_mul")


def test_silu_far_out_is_finite(ops) -> None:
    x = torch.tensor([[-1000.0, 1000.0, -100.0, 2.0, 2.0, 2.0]])
    assert ops.silu_mul(x).tolist() == [[0.0, 2000.0, 0.0]]


def qkv_of(tokens: int, heads: int, kv_heads: int, d: int, dtype: torch.dtype) -> list[Tensor]:
    """Views of one fused product, and that product."""
    qkv = random(tokens, (heads + 2 * kv_heads) * d, dtype=dtype)
    parts = qkv.split([heads * d, kv_heads * d, kv_heads * d], dim=1)
    return [part.view(tokens, part.shape[1] // d, d) for part in parts] + [qkv]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("tokens", [0, 1, 5])
@pytest.mark.parametrize("case", HEADS, ids=str)
def test_rope_turns_views_in_place(ops, case, tokens: int, dtype: torch.dtype) -> None:
    heads, kv_heads, d, half = case
    q, k, v, _ = qkv_of(tokens, heads, kv_heads, d, dtype)
    cos, sin = kernels.rotary_tables(40, half)
    positions = torch.tensor([3, 39, 0, 7, 7])[:tokens]
    right = [kernels.rope(x, positions, cos, sin) for x in (q, k)]
    value = v.clone()
    ops.rope(q, k, positions, cos, sin)
    expect_near(q, right[0], dtype, "q")
    expect_near(k, right[1], dtype, "k")
    assert torch.equal(v, value)


@pytest.mark.parametrize("case", HEADS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rope_and_store_and_store_kv(ops, case, dtype: torch.dtype) -> None:
    heads, kv_heads, d, half = case
    q, k, v, _ = qkv_of(4, heads, kv_heads, d, dtype)
    cos, sin = kernels.rotary_tables(40, half)
    positions, slots = torch.tensor([8, 0, 39, 2]), torch.tensor([5, -1, 0, 11])
    blocks = [random(4, 3, kv_heads, d, seed=seed, dtype=dtype) for seed in (1, 2)]
    turned = kernels.rope(k, positions, cos, sin).to(dtype)
    for key, call in (
        (turned, lambda a, b: ops.rope_and_store(q, k, v, positions, cos, sin, a, b, slots)),
        (k.clone(), lambda a, b: ops.store_kv(k, v, a, b, slots)),
    ):
        right = kernels.store_kv(key, v, *blocks, slots)
        want_q = kernels.rope(q, positions, cos, sin)
        mine, before = [block.clone() for block in blocks], k.clone()
        call(*mine)
        expect_near(mine[0], right[0].double(), dtype, "the keys")
        assert torch.equal(mine[1], right[1])
        assert torch.equal(k, before)
        if key is turned:
            expect_near(q, want_q, dtype, "q")


def test_a_pool_of_keys_beside_values() -> None:
    """Blocks need not follow one another: K and V of a block may be neighbours."""
    both = torch.zeros(3, 2, 4, 2, 16)
    k, v = random(3, 2, 16), random(3, 2, 16, seed=1)
    slots = torch.tensor([11, 2, 4])
    LayerKernels().store_kv(k, v, both[:, 0], both[:, 1], slots)
    right = kernels.store_kv(k, v, torch.zeros(3, 4, 2, 16), torch.zeros(3, 4, 2, 16), slots)
    assert torch.equal(both[:, 0], right[0])
    assert torch.equal(both[:, 1], right[1])


def test_naive_add() -> None:
    x, y = random(1000), random(1000, seed=1)
    assert torch.equal(add(x, y), x + y)


@effort(60)
@given(st.integers(1, 100_000), st.integers(1, LONGEST_ROW), st.sampled_from([1, 132]))
def test_the_tiles_of_a_norm_cover_all_rows(rows: int, d: int, sms: int) -> None:
    tile = norm_tile(rows, d, sms)
    assert tile.block >= d
    assert tile.block & (tile.block - 1) == 0
    assert tile.rows & (tile.rows - 1) == 0
    assert tile.warps in (1, 2, 4, 8, 16)
    assert tile.programs * tile.rows >= rows


REAL = [torch.bfloat16, torch.float16, torch.float32]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("shape", [(8192, 4096), (1, 5120), (257, 1000), (4, 40_000)], ids=str)
def test_norms_on_a_gpu(shape: tuple[int, int], dtype: torch.dtype) -> None:
    x, residual = on("cuda", random(*shape, dtype=dtype), random(*shape, seed=1, dtype=dtype))
    weight = random(shape[1], seed=2, dtype=dtype).cuda()
    got = LayerKernels().rms_norm(x, weight, 1e-5)
    expect_near(got.cpu(), kernels.rms_norm(x, weight, 1e-5).cpu(), dtype, "rms_norm")
    normed, total = kernels.fused_add_rms_norm(x, residual, weight, 1e-5)
    LayerKernels().fused_add_rms_norm(x, residual, weight, 1e-5)
    expect_near(x.cpu(), normed.cpu(), dtype, "the norm of a sum")
    assert torch.equal(residual.double(), total)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_silu_mul_on_a_gpu(dtype: torch.dtype) -> None:
    x = random(300, 2 * 14336, dtype=dtype).cuda()
    expect_near(LayerKernels().silu_mul(x).cpu(), kernels.silu_mul(x).cpu(), dtype, "silu_mul")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("case", [*HEADS, (32, 8, 128, 64), (71, 1, 64, 32)], ids=str)
def test_rope_and_store_on_a_gpu(case: tuple[int, ...], dtype: torch.dtype) -> None:
    heads, kv_heads, d, half = case
    qkv = qkv_of(1000, heads, kv_heads, d, dtype)[3].cuda()
    parts = qkv.split([heads * d, kv_heads * d, kv_heads * d], dim=1)
    q, k, v = (part.view(1000, -1, d) for part in parts)
    cos, sin = on("cuda", *kernels.rotary_tables(4000, half))
    generator = torch.Generator().manual_seed(0)
    positions = torch.randint(0, 4000, (1000,), generator=generator).cuda()
    slots = torch.randperm(2000, generator=generator)[:1000].cuda()
    right_q, right_k = (kernels.rope(x, positions, cos, sin) for x in (q, k))
    keys, values = (torch.zeros(125, 16, kv_heads, d, dtype=dtype, device="cuda") for _ in "kv")
    LayerKernels().rope_and_store(q, k, v, positions, cos, sin, keys, values, slots)
    expect_near(q.cpu(), right_q.cpu(), dtype, "q")
    expect_near(keys.flatten(0, 1)[slots].cpu(), right_k.cpu(), dtype, "the keys")
    assert torch.equal(values.flatten(0, 1)[slots], v)
    LayerKernels().rope(q, k, positions, cos, sin)
    expect_near(k.cpu(), right_k.cpu(), dtype, "k")
    LayerKernels().store_kv(k, v, keys, values, slots)
    assert torch.equal(keys.flatten(0, 1)[slots], k)
