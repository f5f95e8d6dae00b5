"""Parts are joined by natural logarithms."""

import triton
import triton.language as tl

from .splits import part_of, store_lse
from .tiles import attend_keys, load_rows, start_state, store_rows


@triton.jit
def group_heads(kv_head, GROUP: tl.constexpr, ROWS: tl.constexpr):
    """The query head of each of ROWS rows, and which of the rows are real: [ROWS] each.

    GROUP query heads read key head kv_head; the rows behind them only fill the tile.
    """
    rows = tl.arange(0, ROWS)
    if GROUP == 1:
        return kv_head + 0 * rows, rows == 0
    else:
        return kv_head * GROUP + rows, rows < GROUP


@triton.jit
def first_key(num_keys, window):
    """The first key that the last query of a sequence sees."""
    return tl.maximum(num_keys - window, 0)


@triton.jit(do_not_specialize=["window", "table_stride", "splits"])
def decode_kernel(
    out,
    parts,
    lses,
    q,
    key_blocks,
    value_blocks,
    block_tables,
    seq_lens,
    sinks,
    scale,
    softcap,
    window,
    q_stride,
    key_stride,
    value_stride,
    table_stride,
    splits,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    D: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    SPLIT: tl.constexpr,
    WINDOWED: tl.constexpr,
    ROWS: tl.constexpr,
    DIMS: tl.constexpr,
    TILE: tl.constexpr,
):
    """Program (kv_head, split, sequence). Without SPLIT it writes its rows of out [n, heads, D]; else
    what its keys give: parts [n, heads, splits, D] and lses [n, heads, splits], float32.
    """
    kv_head, split, seq = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    start, end = 0, tl.load(seq_lens + seq)
    if WINDOWED:
        start = first_key(end, window)
    if SPLIT:
        start, end = part_of(start, end, split, splits, TILE)
        if start >= end:
            return
    heads, real = group_heads(kv_head, GROUP, ROWS)
    state = start_state(sinks, heads, real, split == 0, ROWS, DIMS)
    top, total, acc = attend_keys(
        load_rows(q, seq + 0 * heads, heads, real, q_stride, D, DIMS),
        state,
        start,
        end,
        None,
        window,
        key_blocks + kv_head * D,
        value_blocks + kv_head * D,
        block_tables + seq * table_stride,
        key_stride,
        value_stride,
        scale,
        softcap,
        BLOCK_SIZE,
        KV_HEADS * D,
        D,
        DIMS,
        TILE,
        CAUSAL=False,
        WINDOWED=False,
    )
    rows = seq * (KV_HEADS * GROUP) + heads
    if SPLIT:
        rows = rows * splits + split
        store_lse(lses, rows, real, top, total)
        store_rows(parts, rows, real, total, acc, D, DIMS)
    else:
        store_rows(out, rows, real, total, acc, D, DIMS)


@triton.jit(do_not_specialize=["window", "splits"])
def combine_kernel(
    out,
    parts,
    lses,
    seq_lens,
    window,
    splits,
    HEADS: tl.constexpr,
    D: tl.constexpr,
    MAX_SPLITS: tl.constexpr,
    WINDOWED: tl.constexpr,
    DIMS: tl.constexpr,
    TILE: tl.constexpr,
):
    """Program (head, sequence): out [n, HEADS, D] of the parts that are not empty; 0 where all are.

    lses: of each part the natural logarithm of its softmax's denominator.
    """
    # Parts are as many as programs fit on the device: no offset here is beyond int32.
    head, seq = tl.program_id(0), tl.program_id(1)
    end = tl.load(seq_lens + seq)
    start = 0
    if WINDOWED:
        start = first_key(end, window)
    split = tl.arange(0, MAX_SPLITS)
    begin, _ = part_of(start, end, split, splits, TILE)
    filled = begin < end  # numbers from `splits` on begin behind the end too

    row = (seq * HEADS + head) * splits + split
    dims = tl.arange(0, DIMS)
    lse = tl.load(lses + row, mask=filled, other=float("-inf"))
    mask = filled[:, None] & (dims < D)[None, :]
    part = tl.load(parts + row[:, None] * D + dims[None, :], mask=mask, other=0.0)
    top = tl.max(lse, axis=0)
    weights = tl.exp(lse - tl.where(top > float("-inf"), top, 0.0))
    total = tl.sum(weights, axis=0)
    # With any key the total is 1 or more: the largest part weighs 1.
    result = tl.sum(part * weights[:, None], axis=0) / tl.maximum(total, 1.0)
    at = (seq * HEADS + head) * D + dims
    tl.store(out + at, result.to(out.dtype.element_ty), mask=dims < D)
