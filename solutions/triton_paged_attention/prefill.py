"""Prefill: chunks of several sequences, each query at its own position, read through block tables."""

import triton
import triton.language as tl

from .tiles import attend_keys, load_rows, start_state, store_rows


# BEGIN SOLUTION 11.5
@triton.jit
def find_tile(query_start_loc, n, tile, TOKENS: tl.constexpr):
    """Which sequence tile number `tile` belongs to, and which of its queries is the tile's first.

    Sequence i owns the tiles from query_start_loc[i] // TOKENS + i on. That is at least as many as it
    needs, and no tile belongs to two; a spare one begins behind its sequence's queries. Both results are
    numbers of Triton's, int32.
    """
    seq = -1
    for base in range(0, n, 128):
        index = base + tl.arange(0, 128)
        there = index < n
        begins = tl.load(query_start_loc + index, mask=there) // TOKENS + index
        seq += tl.sum((there & (begins <= tile)).to(tl.int32), axis=0)
    begin = tl.load(query_start_loc + seq) // TOKENS + seq
    return seq, (tile - begin) * TOKENS


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
    row = tl.arange(0, ROWS)
    token = first + row // GROUP
    return token, kv_head * GROUP + row % GROUP, (row < TOKENS * GROUP) & (token < query_len)


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
    end = tl.minimum(lowest + TOKENS, num_keys)
    if WINDOWED:
        # Tiles in the middle of a long window need no mask: a third range would spare it.
        start = tl.maximum(lowest - window + 1, 0)
        return start, start, end
    else:
        return 0, (lowest + 1) // TILE * TILE, end


# END SOLUTION


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
    """Program (kv_head, tile): up to TOKENS queries of one sequence, in the GROUP heads of kv_head.

    q: rows [query heads, D], q_stride numbers apart. Sequence i of n has the rows query_start_loc[i] up
    to query_start_loc[i + 1], which may be none; rows behind the last sequence are padding. Its queries
    are the last positions of its seq_lens[i] keys. What they see goes to the same rows of out [tokens,
    query heads, D], rounded once.

    The grid is `prefill_grid`'s: a sequence may have any of its tiles, in any order, and a tile has one
    sequence or none. A tile has ROWS rows, TOKENS * GROUP of them at most are real.
    Cost: a number of q is read once, and one of out written once. A tile reads a number of keys, and one
    of values, once for all its heads. No tile of TILE keys is read that all of its queries are before,
    or have behind their windows, nor does such a tile take a turn of the loop; none is read by a tile
    that has no queries. Without a window, positions are compared only where some of its queries see a
    key and others do not.
    """
    # BEGIN SOLUTION 11.5
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
    # END SOLUTION


# ANCHOR_END: prefill_kernel
