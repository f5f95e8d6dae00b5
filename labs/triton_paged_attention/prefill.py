# Lab 11, your part: task 11.5. The rest is given.
"""Prefill: chunks of several sequences, each query at its own position, read through block tables."""

import triton
import triton.language as tl

from .tiles import attend_keys, load_rows, start_state, store_rows


# ANCHOR: find_tile
@triton.jit
def find_tile(query_start_loc, n, tile, TOKENS: tl.constexpr):
    """Which sequence tile number `tile` belongs to, and which of its queries is the tile's first.

    Sequence i owns the tiles from query_start_loc[i] // TOKENS + i on. That is at least as many as it
    needs, and no tile belongs to two; a spare one begins behind its sequence's queries. Both results are
    numbers of Triton's, int32.
    """
    # TODO 11.5: your code here (the reference: 8 lines).
    raise NotImplementedError(
        "triton_paged_attention task 11.5: not implemented yet; see chapter Paged attention in Triton"
    )


# ANCHOR_END: find_tile


# ANCHOR: tile_tokens
@triton.jit
def tile_tokens(
    first,
    query_len,
    kv_head,
    GROUP: tl.constexpr,
    TOKENS: tl.constexpr,
    ROWS: tl.constexpr,
):
    """(token, head, real) of each row of a tile: which query of its sequence, in which query head.

    The tile holds the TOKENS queries from `first` on, each in the GROUP heads that read kv_head. Not
    real: rows behind the last query or behind the tile's last head.
    """
    # TODO 11.5: your code here (the reference: 3 lines).
    raise NotImplementedError(
        "triton_paged_attention task 11.5: not implemented yet; see chapter Paged attention in Triton"
    )


# ANCHOR_END: tile_tokens


# ANCHOR: key_range
@triton.jit
def key_range(
    lowest,
    num_keys,
    window,
    TOKENS: tl.constexpr,
    TILE: tl.constexpr,
    WINDOWED: tl.constexpr,
):
    """(start, full, end): a tile of queries from position `lowest` on needs the keys start..end.

    Those before `full`, whole tiles of them, are seen by all of its queries and need no mask.
    """
    # TODO 11.5: your code here (the reference: 6 lines).
    raise NotImplementedError(
        "triton_paged_attention task 11.5: not implemented yet; see chapter Paged attention in Triton"
    )


# ANCHOR_END: key_range


# ANCHOR: prefill_kernel
@triton.jit(do_not_specialize=["window", "n", "table_stride"])
def prefill_kernel(
    out,
    q,
    key_blocks,
    value_blocks,
    block_tables,
    query_start_loc,
    seq_lens,
    sinks,
    scale,
    softcap,
    window,
    n,
    q_stride,
    key_stride,
    value_stride,
    table_stride,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    D: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TOKENS: tl.constexpr,
    ROWS: tl.constexpr,
    DIMS: tl.constexpr,
    TILE: tl.constexpr,
    WINDOWED: tl.constexpr,
):
    """Program (kv_head, tile): TOKENS queries of one sequence, in all the heads of kv_head's group."""
    kv_head = tl.program_id(0)
    # The last tiles of a sequence see the most keys: they go first.
    tile = tl.num_programs(1) - 1 - tl.program_id(1)
    seq, first = find_tile(query_start_loc, n, tile, TOKENS)
    begin = tl.load(query_start_loc + seq)
    query_len = tl.load(query_start_loc + seq + 1) - begin
    if first >= query_len:
        return
    num_keys = tl.load(seq_lens + seq)

    token, heads, real = tile_tokens(first, query_len, kv_head, GROUP, TOKENS, ROWS)
    index = (begin + token).to(tl.int64)
    positions = num_keys - query_len + token
    tile_q = load_rows(q, index, heads, real, q_stride, D, DIMS)
    state = start_state(sinks, heads, real, True, ROWS, DIMS)
    key_head, value_head = key_blocks + kv_head * D, value_blocks + kv_head * D
    table = block_tables + seq.to(tl.int64) * table_stride

    lowest = num_keys - query_len + first
    start, full, end = key_range(lowest, num_keys, window, TOKENS, TILE, WINDOWED)
    if not WINDOWED:
        state = attend_keys(
            tile_q,
            state,
            start,
            full,
            positions,
            window,
            key_head,
            value_head,
            table,
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
            WINDOWED=WINDOWED,
        )
    _, total, acc = attend_keys(
        tile_q,
        state,
        full,
        end,
        positions,
        window,
        key_head,
        value_head,
        table,
        key_stride,
        value_stride,
        scale,
        softcap,
        BLOCK_SIZE,
        KV_HEADS * D,
        D,
        DIMS,
        TILE,
        CAUSAL=True,
        WINDOWED=WINDOWED,
    )
    rows = index * (KV_HEADS * GROUP) + heads
    store_rows(out, rows, real, total, acc, D, DIMS)


# ANCHOR_END: prefill_kernel
