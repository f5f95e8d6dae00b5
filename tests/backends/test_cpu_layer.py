"""The C++ library's small operations give what lab 2 gives, and its attention what lab 5 gives."""

from typing import Any

import pytest
import torch
from torch import Tensor

from solutions.paged_cache import KVPool
from solutions.radix_attention import RadixAttention
from solutions.transformer_ops import TransformerOps
from yaie.backends.cpu import build
from yaie.backends.cpu.attention import CpuAttention
from yaie.backends.cpu.library import library
from yaie.backends.cpu.ops import CpuOps
from yaie.core.batch import AttentionBatch, AttentionSpec, HeadNorms, KVLayerSpec, Rotation

pytestmark = pytest.mark.skipif(bool(build.missing()), reason=build.missing())

PLAIN = TransformerOps()
DTYPES = (torch.float32, torch.bfloat16)
CPU = torch.device("cpu")


def close(got: Tensor, expected: Tensor) -> None:
    """To what sums in another order differ by; in bfloat16 to the roundings of two numbers."""
    bits = 2.0**-18 if got.dtype == torch.float32 else 2.0**-7
    torch.testing.assert_close(got, expected, rtol=bits, atol=bits)


@pytest.fixture
def ops() -> CpuOps:
    return CpuOps(library(), PLAIN, None)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("d", [1, 7, 64, 100, 1024])
class TestRows:
    def some(self, *shape: int, dtype: torch.dtype, scale: float = 1.0) -> Tensor:
        return (
            torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape))) * scale
        ).to(dtype)

    def test_rms_norm(self, ops: CpuOps, d: int, dtype: torch.dtype) -> None:
        x, weight = self.some(2, 33, d, dtype=dtype), self.some(d, dtype=dtype)
        close(ops.rms_norm(x, weight, 1e-6), PLAIN.rms_norm(x, weight, 1e-6))
        across = x.transpose(0, 1)
        close(ops.rms_norm(across, weight, 1e-6), PLAIN.rms_norm(across, weight, 1e-6))

    def test_norm_of_a_sum(self, ops: CpuOps, d: int, dtype: torch.dtype) -> None:
        x, rest = self.some(300, d, dtype=dtype), self.some(300, 1, dtype=dtype).expand(300, d)
        weight = self.some(d, dtype=dtype)
        got, total = ops.fused_add_rms_norm(x.clone(), rest.clone(), weight, 1e-5)
        expected, expected_total = PLAIN.fused_add_rms_norm(x.clone(), rest.clone(), weight, 1e-5)
        assert torch.equal(total, expected_total)
        close(got, expected)

    def test_silu_mul(self, ops: CpuOps, d: int, dtype: torch.dtype) -> None:
        x = self.some(33, 2 * d, dtype=dtype, scale=40)  # far enough for e^-x to leave float32
        close(ops.silu_mul(x), PLAIN.silu_mul(x))


def test_other_dtypes_are_left_to_lab_2(ops: CpuOps) -> None:
    generator = torch.Generator().manual_seed(1)
    x, weight = (torch.randn(*shape, generator=generator) for shape in ((5, 64), (64,)))
    for rows, scale in (
        (x.half(), weight.half()),
        (x.bfloat16(), weight),
        (x.double(), weight.double()),
    ):
        assert torch.equal(ops.rms_norm(rows, scale, 1e-6), PLAIN.rms_norm(rows, scale, 1e-6))
        got = ops.fused_add_rms_norm(rows, rows.clone(), scale, 1e-6)
        assert torch.equal(got[0], PLAIN.fused_add_rms_norm(rows, rows.clone(), scale, 1e-6)[0])
    assert torch.equal(ops.silu_mul(x.half()), PLAIN.silu_mul(x.half()))


def batch_of(queries: list[int], lens: list[int], pool: KVPool) -> AttentionBatch:
    """Sequences whose blocks lie all over the pool."""
    size = pool.block_size
    width = -(-max(lens) // size)
    order = torch.randperm(pool.num_blocks, generator=torch.Generator().manual_seed(3))
    tables = order[: len(lens) * width].view(len(lens), width).int()
    rows = torch.repeat_interleave(torch.arange(len(lens)), torch.tensor(queries))
    positions = torch.cat([torch.arange(n - q, n) for q, n in zip(queries, lens, strict=True)])
    return AttentionBatch(
        queries, lens, torch.tensor([0, *queries]).cumsum(0).int(), torch.tensor(lens).int(), tables,
        pool.slot_mapping(tables, rows, positions), positions,
    )  # fmt: skip


def made(dtype: torch.dtype, heads: int, kv_heads: int, d: int) -> tuple[list[Tensor], KVPool]:
    """q, k, v as a stacked product gives them, side by side; and a pool with something in it."""
    generator = torch.Generator().manual_seed(5)
    stacked = torch.randn(60, (heads + 2 * kv_heads) * d, generator=generator).to(dtype)
    parts = stacked.split([heads * d, kv_heads * d, kv_heads * d], dim=1)
    pool = KVPool([KVLayerSpec(kv_heads, d)], 60, 8, dtype, CPU)
    for blocks in pool.blocks(0):
        blocks.copy_(torch.randn(blocks.shape, generator=generator))
    return [part.unflatten(1, (-1, d)) for part in parts], pool


def rotation(rotary: int, norms: HeadNorms | None = None) -> dict[str, Any]:
    angles = torch.outer(torch.arange(100.0), 0.3 ** torch.arange(rotary // 2))
    return {"rope": PLAIN.rope, "cos": angles.cos(), "sin": angles.sin(), "norms": norms}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rotary", [0, 16, 48])
@pytest.mark.parametrize("stores", [True, False])
def test_rotated_stored_and_attended_as_by_labs_2_3_and_5(
    dtype: torch.dtype, rotary: int, stores: bool
) -> None:
    queries, lens = [1, 1, 40, 5, 13], [1, 30, 70, 5, 60]
    d = 48
    weights = [1 + torch.arange(d).to(dtype) / d for _ in range(2)]
    norms = HeadNorms(PLAIN.rms_norm, *weights, 1e-6) if rotary == 48 else None
    results = []
    for ours in (True, False):
        (q, k, v), pool = made(dtype, 6, 2, d)
        batch = batch_of(queries, lens, pool)
        spec = AttentionSpec(d**-0.5, window=20 if rotary == 16 else None)
        turned = Rotation(positions=batch.positions, **rotation(rotary, norms)) if rotary else None
        if ours:
            attention = CpuAttention(pool, library(), stores=stores)
            out = attention.run(0, q, k, v, spec, attention.plan(batch), turned)
        else:
            if turned is not None:
                q, k = turned.apply(q, k)
            plain = RadixAttention(pool, PLAIN)
            out = plain.run(0, q, k, v, spec, plain.plan(batch))
        results.append((out, *pool.blocks(0)))
    for got, expected in zip(*results, strict=True):
        close(got, expected)


def test_rows_of_nobody_are_not_stored() -> None:
    (q, k, v), pool = made(torch.float32, 2, 1, 16)
    before = [blocks.clone() for blocks in pool.blocks(0)]
    batch = batch_of([2], [5], pool)
    batch.slot_mapping = torch.tensor([-1, -1])
    attention = CpuAttention(pool, library())
    attention.run(0, q[:2], k[:2], v[:2], AttentionSpec(0.25), attention.plan(batch))
    assert all(torch.equal(*pair) for pair in zip(before, pool.blocks(0), strict=True))
