"""Rows are in order of head, then query; sequences are searched 32 at a time, first tiles go first."""

import triton
import triton.language as tl

from .tiles import attend_keys, load_rows, start_state, store_rows


@triton.jit
def find_tile(query_start_loc, n, tile, TOKENS: tl.constexpr):
    """Which sequence tile number `tile` belongs to, and which of its queries is the tile's first.

    Sequence i owns the tiles from query_start_loc[i] // TOKENS + i on. That is at least as many as it
    needs, and no tile belongs to two; a spare one begins behind its sequence's queries. Both results are
    numbers of Triton's, int32.
    """
    seq = tile * 0
    for base in range(1, n, 32):
        index = base + tl.arange(0, 32)
        begins = tl.load(query_start_loc + index, mask=index < n, other=0) // TOKENS + index
        last = tl.where((index < n) & (begins <= tile), index, 0)
        seq = tl.maximum(seq, tl.max(last, axis=0))
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
    token = first + row % TOKENS
    member = row // TOKENS
    return token, kv_head * GROUP + member, (member < GROUP) & (token < query_len)


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
        # A later query sees less of the front than the first one: no tile goes without a mask.
        start = tl.maximum(lowest - window + 1, 0)
        return start, start, end
    else:
        return 0, (lowest + 1) // TILE * TILE, end


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
    kv_head = tl.program_id(0)
    tile = tl.program_id(1)
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
