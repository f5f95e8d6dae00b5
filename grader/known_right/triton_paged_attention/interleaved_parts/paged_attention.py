"""Paged attention with one kernel, of parts that take every so-manieth tile, joined by PyTorch.

Different from the reference: decode is a prefill of chunks of one query; the host lists the tiles of
queries; rows meet keys in broadcast products, without tl.dot; part i of m takes tiles i, i + m, i + 2 m;
parts leave their sums undivided; and a sink is one more part.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from yaie.core.batch import AttentionSpec

from .splits import choose_splits, num_sms

KEYS = 32


@triton.jit
def part_kernel(
    sums,
    tops,
    totals,
    q,
    key_blocks,
    value_blocks,
    block_tables,
    tiles,
    starts,
    lens,
    scale,
    cap,
    window,
    q_step,
    key_step,
    value_step,
    table_step,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    D: tl.constexpr,
    DIMS: tl.constexpr,
    SIZE: tl.constexpr,
    PARTS: tl.constexpr,
    TOKENS: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    CAPPED: tl.constexpr,
):
    GROUP: tl.constexpr = HEADS // KV_HEADS
    tile, part, kv_head = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    seq, first = tl.load(tiles + 2 * tile), tl.load(tiles + 2 * tile + 1)
    begin, length = tl.load(starts + seq), tl.load(lens + seq)
    count = tl.load(starts + seq + 1) - begin

    row = tl.arange(0, ROWS)
    token, head = first + row % TOKENS, kv_head * GROUP + row // TOKENS
    real = (row // TOKENS < GROUP) & (token < count)
    position = length - count + token
    dim = tl.arange(0, DIMS)
    at = (begin + token).to(tl.int64)[:, None] * q_step + head[:, None] * D + dim[None, :]
    rows = tl.load(q + at, mask=real[:, None] & (dim < D)[None, :], other=0.0).to(tl.float32)

    low = tl.maximum(length - count + first - window + 1, 0) // KEYS
    high = tl.minimum(length - count + first + TOKENS, length)
    top = tl.full([ROWS], -1e30, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, DIMS], tl.float32)
    table = block_tables + seq.to(tl.int64) * table_step
    for number in range(low + part, tl.cdiv(high, KEYS), PARTS):
        key = number * KEYS + tl.arange(0, KEYS)
        there = key < high
        block = tl.load(table + key // SIZE, mask=there, other=0).to(tl.int64)
        mask = there[:, None] & (dim < D)[None, :]
        inner = ((key % SIZE) * KV_HEADS + kv_head)[:, None] * D + dim[None, :]
        k = tl.load(key_blocks + block[:, None] * key_step + inner, mask=mask, other=0.0)
        v = tl.load(value_blocks + block[:, None] * value_step + inner, mask=mask, other=0.0)
        scores = tl.sum(rows[:, None, :] * k.to(tl.float32)[None, :, :], axis=2) * scale
        if CAPPED:
            scores = cap * (2.0 * tl.sigmoid(2.0 * scores / cap) - 1.0)
        ahead = key[None, :] - position[:, None]
        seen = there[None, :] & (ahead <= 0) & (ahead > -window)
        scores = tl.where(seen, scores, -1e30)
        higher = tl.maximum(top, tl.max(scores, axis=1))
        weights = tl.where(seen, tl.exp(scores - higher[:, None]), 0.0)
        shrink = tl.exp(top - higher)
        total = total * shrink + tl.sum(weights, axis=1)
        product = weights[:, :, None] * v.to(tl.float32)[None, :, :]
        acc = acc * shrink[:, None] + tl.sum(product, axis=1)
        top = higher
    place = ((begin + token) * HEADS + head) * PARTS + part
    tl.store(tops + place, top, mask=real)
    tl.store(totals + place, total, mask=real)
    at = place[:, None] * D + dim[None, :]
    tl.store(sums + at, acc, mask=real[:, None] & (dim < D)[None, :])


class PagedAttention:
    """See `yaie.core.contracts.kernels`. splits: parts of a decode; None lets it choose."""

    def __init__(self, splits: int | None = None) -> None:
        self.splits = splits

    def decode(
        self,
        q: Tensor,
        key_blocks: Tensor,
        value_blocks: Tensor,
        block_tables: Tensor,
        seq_lens: Tensor,
        spec: AttentionSpec,
        *,
        max_seq_len: int,
    ) -> Tensor:
        if not len(q):
            return torch.empty_like(q)
        places = num_sms(q.device)
        splits = self.splits or choose_splits(
            len(q), key_blocks.shape[2], max_seq_len, 4 * KEYS, places
        )
        starts = torch.arange(len(q) + 1, dtype=torch.int32)
        pool = (key_blocks, value_blocks, block_tables)
        return self._run(q, pool, starts, seq_lens, spec, splits, tokens=1)

    def prefill(
        self,
        q: Tensor,
        key_blocks: Tensor,
        value_blocks: Tensor,
        block_tables: Tensor,
        query_start_loc: Tensor,
        seq_lens: Tensor,
        spec: AttentionSpec,
        *,
        max_query_len: int,
    ) -> Tensor:
        pool = (key_blocks, value_blocks, block_tables)
        tokens = min(16, triton.next_power_of_2(max(1, max_query_len)))
        return self._run(q, pool, query_start_loc, seq_lens, spec, 1, tokens)

    def _run(
        self,
        q: Tensor,
        pool: tuple[Tensor, Tensor, Tensor],
        starts: Tensor,
        lens: Tensor,
        spec: AttentionSpec,
        parts: int,
        tokens: int,
    ) -> Tensor:
        key_blocks, value_blocks, tables = pool
        (num_tokens, heads, d), (_, size, kv_heads, _) = q.shape, key_blocks.shape
        edges = starts.tolist()
        tiles = [
            (seq, first)
            for seq in range(len(lens))
            for first in range(0, edges[seq + 1] - edges[seq], tokens)
        ]
        if not tiles:
            return torch.empty_like(q)
        sums = q.new_zeros(num_tokens, heads, parts, d, dtype=torch.float32)
        tops, totals = (
            q.new_zeros(num_tokens, heads, parts, dtype=torch.float32) for _ in range(2)
        )
        part_kernel[len(tiles), parts, kv_heads](
            sums,
            tops,
            totals,
            q,
            key_blocks,
            value_blocks,
            tables,
            torch.tensor(tiles, dtype=torch.int32),
            starts,
            lens,
            spec.scale,
            spec.softcap or 1.0,
            spec.window or 2**30,
            q.stride(0),
            key_blocks.stride(0),
            value_blocks.stride(0),
            tables.stride(0),
            HEADS=heads,
            KV_HEADS=kv_heads,
            D=d,
            DIMS=triton.next_power_of_2(d),
            SIZE=size,
            PARTS=parts,
            TOKENS=tokens,
            ROWS=triton.next_power_of_2(tokens * heads // kv_heads),
            KEYS=KEYS,
            CAPPED=spec.softcap is not None,
        )
        if spec.sinks is not None:
            sinks = spec.sinks.float()[None, :, None].expand(num_tokens, -1, 1)
            tops = torch.cat((tops, sinks), dim=-1)
            totals = torch.cat((totals, torch.ones_like(sinks)), dim=-1)
            sums = torch.cat((sums, sums.new_zeros(num_tokens, heads, 1, d)), dim=2)
        # A row without keys has no maximum, and no weight.
        weights = (tops - tops.amax(dim=-1, keepdim=True).clamp(min=-1e30)).exp()
        total = (weights * totals).sum(dim=-1, keepdim=True).clamp(min=1e-30)
        return ((weights[..., None] * sums).sum(dim=2) / total).to(q.dtype)
