"""Paged attention in Triton against float64. Without a GPU the kernels run in Triton's interpreter."""

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from grader.kit.kernels import Pool, expect_near, paged_decode, paged_pool, paged_prefill, random
from grader.kit.triton_watch import watching
from solutions.triton_paged_attention import PagedAttention
from solutions.triton_paged_attention.configs import decode_config, prefill_config, tile_rows
from solutions.triton_paged_attention.naive import (
    launch_naive_decode,
    naive_decode,
    naive_prefill,
)
from solutions.triton_paged_attention.splits import MAX_SPLITS, choose_splits
from tests.solutions.properties import effort
from yaie.core.batch import AttentionSpec

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SIZES = [64, 80, 96, 128, 256]


@pytest.fixture(autouse=True)
def _watched() -> Iterator[None]:
    """Every address is checked, and the interpreter is quicker on the way."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        yield
        return
    with watching():
        yield


def moved(pool: Pool) -> Pool:
    return Pool(*(getattr(pool, name).to(DEVICE) for name in Pool.__dataclass_fields__))


def decode(pool: Pool, q: Tensor, spec: AttentionSpec, splits: int | None = None) -> Tensor:
    there, sinks = moved(pool), None if spec.sinks is None else spec.sinks.to(DEVICE)
    return (
        PagedAttention(splits)
        .decode(
            q.to(DEVICE),
            there.key_blocks,
            there.value_blocks,
            there.block_tables,
            there.seq_lens,
            replace(spec, sinks=sinks),
            max_seq_len=max(pool.seq_lens.tolist(), default=0),
        )
        .cpu()
    )


def prefill(pool: Pool, q: Tensor, queries: list[int], spec: AttentionSpec) -> Tensor:
    there, sinks = moved(pool), None if spec.sinks is None else spec.sinks.to(DEVICE)
    return (
        PagedAttention()
        .prefill(
            q.to(DEVICE),
            there.key_blocks,
            there.value_blocks,
            there.block_tables,
            torch.tensor([0, *queries], device=DEVICE).cumsum(0).int(),
            there.seq_lens,
            replace(spec, sinks=sinks),
            max_query_len=max(queries, default=0),
        )
        .cpu()
    )


def case(
    lens: list[int], heads: int, kv_heads: int, d: int, count: int | None = None, **options: Any
):
    pool = paged_pool(lens, kv_heads=kv_heads, head_dim=d, **options)
    dtype = options.get("dtype", F32)
    return pool, random(len(lens) if count is None else count, heads, d, seed=1, dtype=dtype)


@pytest.mark.parametrize("d", SIZES)
def test_decode_of_every_head_size(d: int) -> None:
    pool, q = case([1, 17, 40], 4, 2, d, block_size=16)
    spec = AttentionSpec(d**-0.5)
    for splits in (1, 2):
        expect_near(decode(pool, q, spec, splits), paged_decode(q, pool, spec), F32, "decode")


@pytest.mark.parametrize("d", SIZES)
def test_prefill_of_every_head_size(d: int) -> None:
    pool, q = case([9, 17, 40], 4, 2, d, count=22, block_size=16)
    spec, queries = AttentionSpec(d**-0.5), [9, 1, 12]
    right = paged_prefill(q, pool, queries, spec)
    expect_near(prefill(pool, q, queries, spec), right, F32, "prefill")


@pytest.mark.parametrize("block_size", [1, 8, 16, 32, 64, 48, 256])
def test_every_block_size(block_size: int) -> None:
    pool, q = case([1, 65, 150], 2, 1, 64, block_size=block_size)
    spec = AttentionSpec(0.125)
    expect_near(decode(pool, q, spec, 2), paged_decode(q, pool, spec), F32, "decode")


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_half_precisions(dtype: torch.dtype) -> None:
    pool, q = case([1, 33, 140], 6, 2, 64, block_size=16, dtype=dtype)
    for spec in (AttentionSpec(0.125), AttentionSpec(0.125, 60, 4.0, random(6, dtype=dtype))):
        for splits in (1, 3):
            expect_near(decode(pool, q, spec, splits), paged_decode(q, pool, spec), dtype, "decode")
    pool, q = case([30, 33], 6, 2, 64, count=40, block_size=16, dtype=dtype)
    right = paged_prefill(q, pool, [30, 10], spec)
    expect_near(prefill(pool, q, [30, 10], spec), right, dtype, "prefill")


@pytest.mark.parametrize("group", [1, 2, 5, 16, 17, 40])
def test_every_group(group: int) -> None:
    pool, q = case([3, 20], 2 * group, 2, 16)
    spec = AttentionSpec(0.25)
    expect_near(decode(pool, q, spec), paged_decode(q, pool, spec), F32, "decode")
    pool, q = case([3, 20], 2 * group, 2, 16, count=12)
    right = paged_prefill(q, pool, [2, 10], spec)
    expect_near(prefill(pool, q, [2, 10], spec), right, F32, "prefill")


def test_nothing_to_do() -> None:
    pool, q = case([], 4, 2, 16)
    spec = AttentionSpec(0.25)
    assert decode(pool, q, spec).shape == prefill(pool, q, [], spec).shape == (0, 4, 16)
    pool, q = case([3, 5], 4, 2, 16, count=0)
    assert prefill(pool, q, [0, 0], spec).shape == (0, 4, 16)


def test_rows_that_are_not_contiguous_are_refused() -> None:
    pool, q = case([7], 4, 2, 16)
    with pytest.raises(ValueError, match="not contiguous"):
        decode(pool, q.transpose(1, 2).contiguous().transpose(1, 2), AttentionSpec(0.25))


def test_a_sequence_without_keys_gives_zeros() -> None:
    """A decode that only fills a captured graph's batch may have a length of 0."""
    pool, q = case([7, 0], 4, 2, 16)
    for spec in (AttentionSpec(0.25), AttentionSpec(0.25, sinks=torch.zeros(4))):
        for splits in (1, 3):
            out = decode(pool, q, spec, splits)
            assert not out[1].any()
            right = paged_decode(q[:1], replace(pool, seq_lens=pool.seq_lens[:1]), spec)
            expect_near(out[:1], right, F32, "decode beside an empty sequence")


def test_many_sequences_find_their_tiles() -> None:
    """More sequences than `find_tile` looks at in one go."""
    queries = [int(i % 9 == 0) for i in range(134)]
    lens = [max(1, count) + i % 2 for i, count in enumerate(queries)]
    pool, q = case(lens, 1, 1, 16, count=sum(queries))
    spec = AttentionSpec(0.25)
    right = paged_prefill(q, pool, queries, spec)
    expect_near(prefill(pool, q, queries, spec), right, F32, "prefill of 134 chunks")


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[int], list[int], dict[str, Any], AttentionSpec, int]:
    """(lens, queries, pool, spec, group)"""
    queries = draw(st.lists(st.integers(0, 40), min_size=1, max_size=4))
    lens = [max(1, count) + draw(st.integers(0, 150)) for count in queries]
    pool = {
        "block_size": draw(st.sampled_from([1, 2, 8, 16, 32])),
        "kv_heads": draw(st.integers(1, 2)),
        "head_dim": draw(st.sampled_from([16, 24, 64])),
        "seed": draw(st.integers(0, 99)),
    }
    group = draw(st.sampled_from([1, 2, 3, 7]))
    spec = AttentionSpec(
        draw(st.sampled_from([0.125, 0.5])),
        draw(st.none() | st.integers(1, 150)),
        draw(st.none() | st.sampled_from([0.5, 3.0])),
        draw(st.none() | st.just(random(group * pool["kv_heads"], seed=pool["seed"]))),
    )
    return lens, queries, pool, spec, group


@effort(8)
@given(cases(), st.integers(1, 5))
def test_any_attention(drawn: Any, splits: int) -> None:
    lens, queries, options, spec, group = drawn
    pool = paged_pool(lens, **options)
    heads, d = group * options["kv_heads"], options["head_dim"]
    q = random(len(lens), heads, d, seed=1)
    expect_near(decode(pool, q, spec, splits), paged_decode(q, pool, spec), F32, "decode")
    q = random(sum(queries), heads, d, seed=2)
    right = paged_prefill(q, pool, queries, spec)
    expect_near(prefill(pool, q, queries, spec), right, F32, "prefill")


def test_the_naive_siblings_agree_with_float64() -> None:
    pool, q = case([1, 40, 7], 6, 2, 24, block_size=16)
    spec = AttentionSpec(0.25, 20, 3.0, random(6))
    exact = paged_decode(q, pool, spec)
    tensors = (pool.key_blocks, pool.value_blocks, pool.block_tables)
    assert torch.allclose(naive_decode(q.double(), *tensors, pool.seq_lens, spec), exact)
    starts = torch.tensor([0, 1, 3, 3])
    q = random(3, 6, 24)
    exact = paged_prefill(q, pool, [1, 2, 0], spec)
    assert torch.allclose(naive_prefill(q.double(), *tensors, starts, pool.seq_lens, spec), exact)
    there, plain = moved(pool), AttentionSpec(0.25)
    out = launch_naive_decode(
        q.to(DEVICE),
        there.key_blocks,
        there.value_blocks,
        there.block_tables,
        there.seq_lens,
        plain,
    )
    expect_near(out.cpu(), paged_decode(q, pool, plain), F32, "the naive kernel")


@given(st.integers(1, 600), st.sampled_from([1, 2, 8]), st.integers(1, 40000), st.integers(1, 800))
def test_splits_fit_into_the_machine(n: int, kv_heads: int, max_keys: int, places: int) -> None:
    splits = choose_splits(n, kv_heads, max_keys, 64, places)
    assert 1 <= splits <= min(MAX_SPLITS, -(-max_keys // 64))
    assert splits == 1 or n * kv_heads * splits <= places


@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=str)
def test_tiles_fit_into_shared_memory(dtype: torch.dtype) -> None:
    """Of the 227 KiB of an H100 or H200: stages - 1 tiles of keys and of values are on their way."""
    for d in SIZES:
        for config in (decode_config(d, dtype), prefill_config(d, dtype, tile_rows(2048, 4))):
            row = 2 ** (d - 1).bit_length() * dtype.itemsize
            assert 2 * (config.stages - 1) * config.tile * row + config.rows * row < 200 * 1024


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=str)
@pytest.mark.parametrize("d", SIZES)
def test_real_sizes(d: int, dtype: torch.dtype) -> None:
    """Thousands of keys, NaN in every slot that holds none, strided queries, all options."""
    group, kv_heads, block_size = {64: 7, 80: 1, 96: 3, 128: 4, 256: 2}[d], 2, 16
    lens, queries = [1, 17, 300, 4001, 5], [1, 17, 130, 300, 0]
    counts = [-(-length // block_size) for length in lens]
    torch.manual_seed(0)
    shape = (sum(counts), block_size, kv_heads, d)
    keys, values = (torch.randn(shape, device="cuda").to(dtype) for _ in range(2))
    tables = torch.full((len(lens), max(counts) + 1), 2**30, dtype=torch.int32, device="cuda")
    order = iter(torch.randperm(sum(counts)).split(counts))
    for row, (length, count) in enumerate(zip(lens, counts, strict=True)):
        tables[row, :count] = blocks = next(order).int().cuda()
        for pool in (keys, values):
            pool[blocks[-1].long(), length - (count - 1) * block_size :] = float("nan")
    seq_lens = torch.tensor(lens, dtype=torch.int32, device="cuda")
    starts = torch.tensor([0, *queries], device="cuda").cumsum(0).int()
    heads = group * kv_heads
    fused = torch.randn(sum(queries), heads + 8, d, device="cuda").to(dtype)
    q = fused[:, 4:-4]
    sinks = torch.randn(heads, device="cuda").to(dtype)
    bound = {F32: 1e-5, F16: 2e-3, BF16: 2e-2}[dtype]
    pool = (keys, values, tables)
    for spec in (AttentionSpec(d**-0.5), AttentionSpec(d**-0.5, 100, 5.0, sinks)):
        right = naive_decode(q[:5].double(), *pool, seq_lens, spec)
        for splits in (None, 1, 7):
            part = PagedAttention(splits)
            out = part.decode(q[:5], *pool, seq_lens, spec, max_seq_len=4001)
            assert (out.double() - right).abs().max() < bound, (spec, splits)
        right = naive_prefill(q.double(), *pool, starts, seq_lens, spec)
        out = PagedAttention().prefill(q, *pool, starts, seq_lens, spec, max_query_len=300)
        assert (out.double() - right).abs().max() < bound, spec


@pytest.mark.gpu
def test_decode_in_a_cuda_graph() -> None:
    """Longer sequences than at capture: grid and splits come from the bound, lengths from the device."""
    torch.manual_seed(0)
    keys, values = (torch.randn(64, 16, 2, 64, device="cuda") for _ in range(2))
    tables = torch.randperm(64, device="cuda").int().view(2, 32)
    seq_lens = torch.tensor([1, 1], dtype=torch.int32, device="cuda")
    q, spec = torch.randn(2, 4, 64, device="cuda"), AttentionSpec(0.125)
    part = PagedAttention()
    part.decode(q, keys, values, tables, seq_lens, spec, max_seq_len=512)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = part.decode(q, keys, values, tables, seq_lens, spec, max_seq_len=512)
    for lens in ([3, 512], [300, 40]):
        seq_lens.copy_(torch.tensor(lens))
        graph.replay()
        right = naive_decode(q.double(), keys, values, tables, seq_lens, spec)
        assert (out.double() - right).abs().max() < 1e-5
