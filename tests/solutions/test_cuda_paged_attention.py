"""Lab 16 against float64: on the CPU in tiny shapes, on a GPU in real ones."""

import math

import pytest
import torch
from torch import Tensor

import solutions.cuda_paged_attention.paged_attention as lab
from grader.kit.kernels import Pool, paged_pool, random
from solutions.cuda_paged_attention import PagedAttention, PrefixKernel, Split
from solutions.cuda_paged_attention.naive import (
    naive_decode,
    naive_longest_common_prefix,
    naive_paged_attention,
)
from yaie.core.batch import AttentionSpec

TOLERANCE = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
DTYPES = list(TOLERANCE)
SIZES = [64, 80, 96, 128, 256]


def close(got: Tensor, exact: Tensor) -> None:
    tolerance = TOLERANCE[got.dtype]
    torch.testing.assert_close(got.double(), exact, rtol=tolerance, atol=tolerance)


def specs(heads: int, dim: int) -> list[AttentionSpec]:
    sinks = random(heads, seed=7)
    return [
        AttentionSpec(dim**-0.5),
        AttentionSpec(dim**-0.5, window=9, softcap=2.0, sinks=sinks),
    ]


def decode(q: Tensor, pool: Pool, spec: AttentionSpec) -> Tensor:
    return PagedAttention().decode(
        q, pool.key_blocks, pool.value_blocks, pool.block_tables, pool.seq_lens, spec,
        max_seq_len=int(pool.seq_lens.max()),
    )  # fmt: skip


def exact_decode(q: Tensor, pool: Pool, spec: AttentionSpec) -> Tensor:
    return naive_decode(
        q, pool.key_blocks, pool.value_blocks, pool.block_tables, pool.seq_lens, spec
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", SIZES)
def test_decode_of_ragged_sequences(dim: int, dtype: torch.dtype) -> None:
    pool = paged_pool([1, 0, 18, 7], block_size=4, kv_heads=2, head_dim=dim, dtype=dtype)
    q = random(4, 6, dim, seed=1, dtype=dtype)
    for spec in specs(6, dim):
        close(decode(q, pool, spec), exact_decode(q, pool, spec))


@pytest.mark.parametrize("heads", [(1, 1), (2, 1), (8, 2), (5, 1), (9, 1), (3, 3)])
def test_decode_of_any_group(heads: tuple[int, int]) -> None:
    pool = paged_pool([5, 33], block_size=16, kv_heads=heads[1], head_dim=64)
    q = random(2, heads[0], 64, seed=2)
    for spec in specs(heads[0], 64):
        close(decode(q, pool, spec), exact_decode(q, pool, spec))


@pytest.mark.parametrize("block_size", [1, 3, 16, 32])
def test_decode_in_many_parts(block_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab, "plan_split", lambda *_: Split(7, 6))
    pool = paged_pool([41, 3, 0], block_size=block_size, kv_heads=1, head_dim=64)
    q = random(3, 2, 64, seed=3)
    for spec in specs(2, 64):
        close(decode(q, pool, spec), exact_decode(q, pool, spec))


def test_decode_of_a_view_of_the_fused_product() -> None:
    pool = paged_pool([6, 9], kv_heads=2, head_dim=64)
    fused = random(2, (4 + 2 + 2) * 64, seed=4)
    q = fused[:, : 4 * 64].view(2, 4, 64)
    close(decode(q, pool, AttentionSpec(0.125)), exact_decode(q, pool, AttentionSpec(0.125)))


def test_decode_of_no_sequences() -> None:
    pool = paged_pool([3], head_dim=64)
    tables, lens = pool.block_tables[:0], pool.seq_lens[:0]
    out = PagedAttention().decode(
        torch.empty(0, 4, 64), pool.key_blocks, pool.value_blocks, tables, lens, AttentionSpec(1.0),
        max_seq_len=0,
    )  # fmt: skip
    assert out.shape == (0, 4, 64)


def test_the_naive_kernel_says_the_same() -> None:
    pool = paged_pool([1, 11], kv_heads=2, head_dim=64)
    q = random(2, 4, 64, seed=5)
    for spec in specs(4, 64):
        got = lab.naive_decode(
            q, pool.key_blocks, pool.value_blocks, pool.block_tables, pool.seq_lens, spec
        )
        close(got, exact_decode(q, pool, spec))


def test_head_sizes_that_do_not_fit_are_refused() -> None:
    pool = paged_pool([3], head_dim=12)
    with pytest.raises(ValueError, match="head size 12"):
        decode(random(1, 2, 12), pool, AttentionSpec(1.0))


def test_heads_that_do_not_divide_are_refused() -> None:
    pool = paged_pool([3], kv_heads=2)
    with pytest.raises(ValueError, match="evenly"):
        decode(random(1, 3, 16), pool, AttentionSpec(1.0))


def test_bfloat16_sums_are_float32() -> None:
    pool = paged_pool([150], kv_heads=1, head_dim=64, block_size=16, dtype=torch.bfloat16)
    q = random(1, 1, 64, seed=6, dtype=torch.bfloat16)
    spec = AttentionSpec(0.125)
    parts = PagedAttention().decode_parts(
        q, pool.key_blocks, pool.value_blocks, pool.block_tables, pool.seq_lens, spec, Split(1, 256)
    )
    got = parts.acc[0, :, 0] / parts.stats[0, :, 0, 1:]
    torch.testing.assert_close(got.double(), exact_decode(q, pool, spec)[0], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", SIZES)
def test_prefill_of_chunks(dim: int, dtype: torch.dtype) -> None:
    lens, queries = [7, 1, 19], [3, 1, 18]
    pool = paged_pool(lens, block_size=4, kv_heads=1, head_dim=dim, dtype=dtype)
    starts = torch.tensor([0, 3, 4, 22], dtype=torch.int32)
    q = random(22, 2, dim, seed=8, dtype=dtype)
    for spec in specs(2, dim):
        got = PagedAttention().prefill(
            q, pool.key_blocks, pool.value_blocks, pool.block_tables, starts, pool.seq_lens, spec,
            max_query_len=max(queries),
        )  # fmt: skip
        exact = naive_paged_attention(
            q, pool.key_blocks, pool.value_blocks, pool.block_tables, starts, pool.seq_lens, spec
        )
        close(got, exact)


def test_prefixes_of_random_rows() -> None:
    generator = torch.Generator().manual_seed(0)
    for length, rows, width in ((1, 3, 1), (300, 9, 290), (129, 40, 140), (0, 2, 5), (7, 0, 3)):
        tokens = torch.randint(0, 3, (length,), generator=generator, dtype=torch.int32)
        keys = torch.randint(0, 3, (rows, width), generator=generator, dtype=torch.int32)
        for row in range(rows):
            same = int(torch.randint(0, min(length, width) + 1, (1,), generator=generator))
            keys[row, :same] = tokens[:same]
        lens = torch.randint(0, width + 1, (rows,), generator=generator, dtype=torch.int32)
        got = PrefixKernel().longest_common_prefix(tokens, keys, lens)
        assert torch.equal(got, naive_longest_common_prefix(tokens, keys, lens))


def on_gpu(pool: Pool) -> Pool:
    return Pool(
        pool.key_blocks.cuda(), pool.value_blocks.cuda(), pool.block_tables.cuda(),
        pool.seq_lens.cuda(),
    )  # fmt: skip


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", SIZES)
def test_decode_on_a_gpu(dim: int, dtype: torch.dtype) -> None:
    lens = [0, 1, 255, 256, 257, 1500]
    pool = paged_pool(lens, block_size=16, kv_heads=2, head_dim=dim, dtype=dtype)
    for heads in (2, 6, 8, 32):
        q = random(len(lens), heads, dim, seed=1, dtype=dtype)
        for spec in (
            AttentionSpec(dim**-0.5),
            AttentionSpec(dim**-0.5, window=300, softcap=5.0, sinks=random(heads, seed=2)),
        ):
            exact = exact_decode(q, pool, spec)
            there = None if spec.sinks is None else spec.sinks.cuda()
            moved = AttentionSpec(spec.scale, spec.window, spec.softcap, there)
            close(decode(q.cuda(), on_gpu(pool), moved).cpu(), exact)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_long_decodes_on_a_gpu(dtype: torch.dtype) -> None:
    n, length, blocks = 2, 20_000, 2600
    keys, values = (torch.randn(blocks, 16, 2, 128, device="cuda").to(dtype) for _ in range(2))
    tables = torch.randperm(blocks, device="cuda")[: n * 1250].view(n, 1250).int()
    lens = torch.tensor([length, 777], dtype=torch.int32, device="cuda")
    q, spec = torch.randn(n, 8, 128, device="cuda").to(dtype), AttentionSpec(128**-0.5)
    got = PagedAttention().decode(q, keys, values, tables, lens, spec, max_seq_len=length)
    host = [x.cpu() for x in (q, keys, values, tables, lens)]
    close(got.cpu(), naive_decode(*host, spec))
    assert not math.isnan(float(got.sum()))


@pytest.mark.gpu
def test_prefixes_on_a_gpu() -> None:
    tokens = torch.arange(5000, dtype=torch.int32)
    keys = tokens.repeat(2000, 1)
    places = torch.randint(0, 5000, (2000,))
    keys[torch.arange(2000), places] = -1
    lens = torch.randint(0, 5001, (2000,), dtype=torch.int32)
    got = PrefixKernel().longest_common_prefix(tokens.cuda(), keys.cuda(), lens.cuda())
    assert torch.equal(got.cpu().long(), torch.minimum(places, lens.long()))
