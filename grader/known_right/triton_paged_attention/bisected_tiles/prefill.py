"""The tile's sequence is found by bisection, in one kernel without helpers."""

import triton
import triton.language as tl

from .tiles import attend_keys, load_rows, start_state, store_rows


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

    q: rows [query heads, D], q_stride numbers apart. Sequence i has the rows query_start_loc[i] up to
    query_start_loc[i + 1], n sequences in all; there may be none, and rows behind the last sequence are
    padding. Its queries are the last positions of its seq_lens[i] keys. What they see goes to the same
    rows of out [tokens, query heads, D], rounded once.

    The grid is `prefill_grid`'s: a sequence may have any of its tiles, in any order, and a tile has one
    sequence or none. A tile has ROWS rows, TOKENS * GROUP of them at most are real.
    Cost: a number of q is read once, and one of out written once. A tile reads a number of keys, and one
    of values, once for all its heads. No tile of TILE keys is read that all of its queries are before,
    or have behind their windows; and none by a tile that has no queries. Positions are compared only
    where some of its queries see a key and others do not.
    """
    kv_head, tile = tl.program_id(0), tl.program_id(1)
    seq, behind = n * 0, n + tile * 0
    while behind - seq > 1:
        middle = (seq + behind) // 2
        if tl.load(query_start_loc + middle) // TOKENS + middle <= tile:
            seq = middle
        else:
            behind = middle
    begin, stop = tl.load(query_start_loc + seq), tl.load(query_start_loc + seq + 1)
    first = begin + (tile - seq - begin // TOKENS) * TOKENS
    if first < stop:
        row = tl.arange(0, ROWS)
        index = first + row // GROUP
        heads = kv_head * GROUP + row % GROUP
        real = (row // GROUP < TOKENS) & (index < stop)
        num_keys = tl.load(seq_lens + seq)
        positions = num_keys - stop + index
        state = start_state(sinks, heads, real, True, ROWS, DIMS)
        long_index = index.to(tl.int64)
        tile_q = load_rows(q, long_index, heads, real, q_stride, D, DIMS)
        table = block_tables + seq.to(tl.int64) * table_stride
        lowest = num_keys - stop + first
        highest = tl.minimum(lowest + TOKENS, num_keys) - 1
        start = 0
        plain = lowest + 1
        if WINDOWED:
            start = tl.maximum(lowest - window + 1, 0)
            # Up to here keys are in no later query's window, or in all of them behind it.
            hidden = tl.maximum(highest - window + 1, 0) - start
            masked = start + tl.cdiv(hidden, TILE) * TILE
            masked = tl.minimum(masked, highest + 1)
            state = attend_keys(
                tile_q, state, start, masked, positions, window,
                key_blocks + kv_head * D, value_blocks + kv_head * D,
                table, key_stride, value_stride, scale, softcap,
                BLOCK_SIZE, KV_HEADS * D, D, DIMS, TILE, True, True,
            )  # fmt: skip
            start = masked
        full = start + tl.maximum(plain - start, 0) // TILE * TILE
        state = attend_keys(
            tile_q, state, start, full, positions, window,
            key_blocks + kv_head * D, value_blocks + kv_head * D,
            table, key_stride, value_stride, scale, softcap,
            BLOCK_SIZE, KV_HEADS * D, D, DIMS, TILE, False, False,
        )  # fmt: skip
        _, total, acc = attend_keys(
            tile_q, state, full, highest + 1, positions, window,
            key_blocks + kv_head * D, value_blocks + kv_head * D,
            table, key_stride, value_stride, scale, softcap,
            BLOCK_SIZE, KV_HEADS * D, D, DIMS, TILE, True, False,
        )  # fmt: skip
        store_rows(out, long_index * (KV_HEADS * GROUP) + heads, real, total, acc, D, DIMS)
