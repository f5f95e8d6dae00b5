# Lab 11, your part (edition 2): task 11.5. The rest is given.
"""Prefill: chunks of several sequences, each query at its own position, read through block tables."""

import triton
import triton.language as tl

from .tiles import attend_keys, load_rows, start_state, store_rows


# TODO 11.5, if you like: helpers of your own (the reference: 49 lines).


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
    # TODO 11.5: your code here (the reference: 64 lines).
    raise NotImplementedError(
        "triton_paged_attention task 11.5: not implemented yet; see chapter Paged attention in Triton"
    )


# ANCHOR_END: prefill_kernel
