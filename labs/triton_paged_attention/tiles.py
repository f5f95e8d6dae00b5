# Lab 11, your part (edition 2): tasks 11.1, 11.4, 11.5. The rest is given.
"""What decode and prefill share: keys found through a block table, and the online softmax over them.

Scores are kept in units of log2(e), because the hardware computes powers of 2: exp(x) is
exp2(x * log2(e)).
A program holds a tile of rows, one for each pair of a query and a head, and for each row the state of
its softmax (Milakov and Gimelshein 2018): top, the largest score so far; total, the sum of
exp2(score - top); and acc, the sum of exp2(score - top) * value.
"""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)


# ANCHOR: rows
@triton.jit
def load_rows(q, index, heads, real, stride, D: tl.constexpr, DIMS: tl.constexpr):
    """Queries as a tile [ROWS, DIMS]: head heads[r] of token index[r], or 0 where real[r] is False.

    A token is `stride` numbers long in q. Dimensions from D on are 0.
    """
    # TODO 11.1: your code here (the reference: 3 lines).
    raise NotImplementedError(
        "triton_paged_attention task 11.1: not implemented yet; see chapter Paged attention in Triton"
    )


@triton.jit
def store_rows(out, rows, real, total, acc, D: tl.constexpr, DIMS: tl.constexpr):
    """Write acc / total of the real rows to rows of `out` [.., D]. A row that saw no key becomes 0."""
    # TODO 11.1: your code here (the reference: 4 lines).
    raise NotImplementedError(
        "triton_paged_attention task 11.1: not implemented yet; see chapter Paged attention in Triton"
    )


# ANCHOR_END: rows


# ANCHOR: locate
@triton.jit
def locate(table, keys, end, BLOCK_SIZE: tl.constexpr):
    """In which blocks of the pool the keys at these positions lie: [TILE] int64.

    table: one sequence's block numbers. keys: [TILE] positions. From `end` on there are no keys; the
    table may hold anything there, and is not read.
    """
    # TODO 11.1: your code here (the reference: 1 line).
    raise NotImplementedError(
        "triton_paged_attention task 11.1: not implemented yet; see chapter Paged attention in Triton"
    )


# ANCHOR_END: locate


# ANCHOR: start_state
@triton.jit
def start_state(sinks, heads, real, is_first, ROWS: tl.constexpr, DIMS: tl.constexpr):
    """(top, total, acc) of rows that have seen no key yet: [ROWS], [ROWS], [ROWS, DIMS], float32.

    sinks: a logit for each query head, or None. heads: the query head of each row; those that are not
    real have none. is_first: whether this program has the first part of the rows' keys.
    """
    top = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, DIMS], tl.float32)
    if sinks is not None:
        # TODO 11.4: your code here (the reference: 3 lines).
        raise NotImplementedError(
            "triton_paged_attention task 11.4: not implemented yet; see chapter Paged attention in Triton"
        )
    return top, total, acc


# ANCHOR_END: start_state


# ANCHOR: capped
@triton.jit
def scaled_scores(products, scale, softcap):
    """Scores in units of log2(e) of the products of queries and keys. softcap: a number or None."""
    if softcap is None:
        return products * (scale * LOG2E)
    else:
        # TODO 11.4: your code here (the reference: 2 lines).
        raise NotImplementedError(
            "triton_paged_attention task 11.4: not implemented yet; see chapter Paged attention in Triton"
        )


# ANCHOR_END: capped


# ANCHOR: sees
@triton.jit
def sees(positions, keys, window, WINDOWED: tl.constexpr):
    """Which of the keys at `keys` [TILE] the queries at `positions` [ROWS] see: [ROWS, TILE]."""
    # TODO 11.5: your code here (the reference: 5 lines).
    raise NotImplementedError(
        "triton_paged_attention task 11.5: not implemented yet; see chapter Paged attention in Triton"
    )


# ANCHOR_END: sees


# ANCHOR: attend_keys
@triton.jit
def attend_keys(
    q,
    state,
    start,
    end,
    positions,
    window,
    key_blocks,
    value_blocks,
    table,
    key_stride,
    value_stride,
    scale,
    softcap,
    BLOCK_SIZE: tl.constexpr,
    SLOT: tl.constexpr,
    D: tl.constexpr,
    DIMS: tl.constexpr,
    TILE: tl.constexpr,
    CAUSAL: tl.constexpr,
    WINDOWED: tl.constexpr,
):
    """The state of the rows q [ROWS, DIMS] after the keys start..end, TILE of them at a time: no turn of
    the loop is without any of them. Both products multiply the pool's dtype, and are float32.

    key_blocks, value_blocks: the pool from this program's key head on; a block is key_stride or
    value_stride numbers long, a slot SLOT numbers. CAUSAL: a row sees what `sees` says; otherwise each
    row sees them all. A row that has seen no key has a top of -inf and a total of 0.
    """
    top, total, acc = state
    # TODO 11.1: your code here (the reference: 28 lines).
    raise NotImplementedError(
        "triton_paged_attention task 11.1: not implemented yet; see chapter Paged attention in Triton"
    )
    return top, total, acc


# ANCHOR_END: attend_keys
