"""Attention of chunks of a few tokens, as steps have them that verify drafts: keys split over programs.

Lab 11's prefill has a program for a tile of queries and a key head, which walks through all keys: with
five queries of one request that is eight programs on a whole GPU. Here as many programs as fit share
the keys, as in that lab's decode, and each reads its keys once for all queries of a chunk and all heads
of a group (Flash-Decoding, Dao et al. 2023).
"""

from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from yaie.backends.attention_plan import Chunks
from yaie.backends.early import early_launch, starts_early
from yaie.core.batch import AttentionSpec

MOST_TOKENS = 64
"""Of a step's chunks. From there on there are programs enough."""
TOKENS = 8
"""Queries of a program."""
TILE = 64
"""Keys at a time."""
PER_SM = 3
MAX_SPLITS = 64
CPU_SMS = 132
"""For the interpreter, which has no multiprocessors."""
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit(do_not_specialize=["n", "table_stride", "splits"])
def few_queries_kernel(
    parts, lses, q, key_blocks, value_blocks, block_tables, query_start_loc, seq_lens, scale, n,
    q_stride, key_stride, value_stride, table_stride, splits, KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr, D: tl.constexpr, BLOCK_SIZE: tl.constexpr, TOKENS: tl.constexpr,
    ROWS: tl.constexpr, DIMS: tl.constexpr, TILE: tl.constexpr, SEQS: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """Program (kv_head, split, tile): what its keys give of TOKENS queries of one chunk.

    parts: [T, heads, splits, D] and lses [T, heads, splits], float32; the latter -inf where a query sees
    none of the keys. Chunk i owns the tiles from query_start_loc[i] // TOKENS + i on.
    EARLY: see `early`.
    """
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()
    kv_head, split, tile = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    chunks = tl.arange(0, SEQS)
    begins = tl.load(query_start_loc + chunks, mask=chunks < n, other=0) // TOKENS + chunks
    seq = tl.sum(((chunks < n) & (begins <= tile)).to(tl.int32), axis=0) - 1
    begin = tl.load(query_start_loc + seq)
    query_len = tl.load(query_start_loc + seq + 1) - begin
    first = (tile - begin // TOKENS - seq) * TOKENS
    if first >= query_len:
        return
    num_keys = tl.load(seq_lens + seq)
    lowest = num_keys - query_len + first
    last = tl.minimum(lowest + TOKENS, num_keys)
    size = tl.cdiv(tl.cdiv(last, TILE), splits) * TILE
    start = split * size
    end = tl.minimum(start + size, last)

    row, dims = tl.arange(0, ROWS), tl.arange(0, DIMS)
    token, heads = first + row // GROUP, kv_head * GROUP + row % GROUP
    real = (row < TOKENS * GROUP) & (token < query_len)
    index = (begin + token).to(tl.int64)
    at = q + (index * q_stride + heads * D)[:, None] + dims[None, :]
    queries = tl.load(at, mask=real[:, None] & (dims < D)[None, :], other=0.0)
    positions = num_keys - query_len + token

    top = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, DIMS], tl.float32)
    table = block_tables + seq.to(tl.int64) * table_stride
    keys = start + tl.arange(0, TILE)
    blocks = tl.load(table + keys // BLOCK_SIZE, mask=keys < end, other=0).to(tl.int64)
    for _ in tl.range(start, end, TILE):
        mask = (keys < end)[:, None] & (dims < D)[None, :]
        inner = (keys % BLOCK_SIZE * KV_HEADS * D + kv_head * D)[:, None] + dims[None, :]
        k = tl.load(key_blocks + (blocks * key_stride)[:, None] + inner, mask=mask, other=0.0)
        v = tl.load(value_blocks + (blocks * value_stride)[:, None] + inner, mask=mask, other=0.0)
        visible = (keys < end)[None, :] & (positions[:, None] >= keys[None, :])
        keys += TILE  # the next turn's blocks are looked up ahead
        blocks = tl.load(table + keys // BLOCK_SIZE, mask=keys < end, other=0).to(tl.int64)
        scores = tl.dot(queries, tl.trans(k), input_precision="ieee") * (scale * LOG2E)
        scores = tl.where(visible, scores, float("-inf"))
        new_top = tl.maximum(top, tl.max(scores, axis=1))
        base = tl.where(new_top > float("-inf"), new_top, 0.0)
        shrink = tl.exp2(top - base)
        weights = tl.exp2(scores - base[:, None])
        total = total * shrink + tl.sum(weights, axis=1)
        acc = tl.dot(weights.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
        top = new_top
    rows = (index * (KV_HEADS * GROUP) + heads) * splits + split
    seen = total > 0
    lse = tl.where(seen, top + tl.log2(tl.where(seen, total, 1.0)), float("-inf"))
    tl.store(lses + rows, lse, mask=real)
    part = acc / tl.where(seen, total, 1.0)[:, None]
    mask = (real & seen)[:, None] & (dims < D)[None, :]
    tl.store(parts + rows[:, None] * D + dims[None, :], part, mask=mask)


@triton.jit(do_not_specialize=["n", "splits"])
def join_kernel(
    out, parts, lses, query_start_loc, n, splits, HEADS: tl.constexpr, D: tl.constexpr,
    DIMS: tl.constexpr, MAX_SPLITS: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Program (head, token): out [T, HEADS, D] of the parts that saw a key; 0 behind the last chunk."""
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()
    is_padding = tl.program_id(1) >= tl.load(query_start_loc + n)
    row = tl.program_id(1).to(tl.int64) * HEADS + tl.program_id(0)
    split, dims = tl.arange(0, MAX_SPLITS), tl.arange(0, DIMS)
    at = row * splits + split
    lse = tl.load(lses + at, mask=(split < splits) & (not is_padding), other=float("-inf"))
    seen = lse > float("-inf")
    mask = seen[:, None] & (dims < D)[None, :]
    part = tl.load(parts + at[:, None] * D + dims[None, :], mask=mask, other=0.0)
    top = tl.max(lse, axis=0)
    weights = tl.exp2(lse - tl.where(top > float("-inf"), top, 0.0))
    # With any key the total is 1 or more: the largest part weighs 1.
    result = tl.sum(part * weights[:, None], axis=0) / tl.maximum(tl.sum(weights, axis=0), 1.0)
    tl.store(out + row * D + dims, result.to(out.dtype.element_ty), mask=dims < D)


def takes(q: Tensor, chunks: Chunks, spec: AttentionSpec) -> bool:
    """Whether these chunks are few queries, and every key before a query is seen as it is."""
    plain = spec.window is None and spec.softcap is None and spec.sinks is None
    return plain and 0 < chunks.end - chunks.start <= MOST_TOKENS and q.dtype != torch.float32


def attend(
    q: Tensor, key_blocks: Tensor, value_blocks: Tensor, chunks: Chunks, spec: AttentionSpec
) -> Tensor:
    """As `PagedAttention.prefill`, of chunks that `takes` takes: from q [T, heads, d] the same shape."""
    (num_tokens, heads, d), kv_heads = q.shape, key_blocks.shape[2]
    n, group, dims = len(chunks.seq_lens), heads // kv_heads, triton.next_power_of_2(d)
    tiles = num_tokens // TOKENS + n
    most_keys = chunks.block_tables.shape[1] * key_blocks.shape[1]
    splits = splits_for(num_tokens, kv_heads, most_keys, _places(q.device))
    rows = max(16, triton.next_power_of_2(TOKENS * group))
    early = starts_early(q.device)
    parts = q.new_empty(num_tokens, heads, splits, d, dtype=torch.float32)
    lses = q.new_empty(num_tokens, heads, splits, dtype=torch.float32)
    few_queries_kernel[kv_heads, splits, tiles](
        parts, lses, q, key_blocks, value_blocks, chunks.block_tables, chunks.query_start_loc,
        chunks.seq_lens, spec.scale, n, q.stride(0), key_blocks.stride(0), value_blocks.stride(0),
        chunks.block_tables.stride(0), splits, KV_HEADS=kv_heads, GROUP=group, D=d,
        BLOCK_SIZE=key_blocks.shape[1], TOKENS=TOKENS, ROWS=rows, DIMS=dims,
        TILE=TILE if dims <= 128 else TILE // 2, SEQS=triton.next_power_of_2(n),
        num_warps=4 if rows * dims <= 8192 else 8, num_stages=3 if dims <= 128 else 2,
        EARLY=early, **early_launch(early),
    )  # fmt: skip
    out = q.new_empty(num_tokens, heads, d)
    join_kernel[heads, num_tokens](
        out, parts, lses, chunks.query_start_loc, n, splits, HEADS=heads, D=d, DIMS=dims,
        MAX_SPLITS=MAX_SPLITS, num_warps=2, EARLY=early, **early_launch(early),
    )  # fmt: skip
    return out


def splits_for(num_tokens: int, kv_heads: int, most_keys: int, places: int) -> int:
    """Into how many parts keys are divided: as many as fill the places once, a tile each at least."""
    programs = triton.cdiv(num_tokens, TOKENS) * kv_heads
    return max(1, min(places // programs, triton.cdiv(most_keys, TILE), MAX_SPLITS))


@lru_cache(maxsize=8)
def _places(device: torch.device) -> int:
    """Programs that run at once."""
    if device.type != "cuda":
        return PER_SM * CPU_SMS
    return PER_SM * torch.cuda.get_device_properties(device).multi_processor_count
