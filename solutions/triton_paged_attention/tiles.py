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
    # BEGIN SOLUTION 11.1
    dims = tl.arange(0, DIMS)
    at = (index * stride + heads * D)[:, None] + dims[None, :]
    return tl.load(q + at, mask=real[:, None] & (dims < D)[None, :], other=0.0)
    # END SOLUTION


@triton.jit
def store_rows(out, rows, real, total, acc, D: tl.constexpr, DIMS: tl.constexpr):
    """Write acc / total of the real rows to rows of `out` [.., D]. A row that saw no key becomes 0."""
    # BEGIN SOLUTION 11.1
    dims = tl.arange(0, DIMS)
    # With any key the total is 1 or more: the largest score weighs 1.
    result = acc / tl.maximum(total, 1.0)[:, None]
    mask = real[:, None] & (dims < D)[None, :]
    tl.store(out + rows[:, None] * D + dims[None, :], result.to(out.dtype.element_ty), mask=mask)
    # END SOLUTION


# ANCHOR_END: rows


# ANCHOR: locate
@triton.jit
def locate(table, keys, end, BLOCK_SIZE: tl.constexpr):
    """In which blocks of the pool the keys at these positions lie: [TILE] int64.

    table: one sequence's block numbers. keys: [TILE] positions. From `end` on there are no keys; the
    table may hold anything there, and is not read.
    """
    # BEGIN SOLUTION 11.1
    return tl.load(table + keys // BLOCK_SIZE, mask=keys < end, other=0).to(tl.int64)
    # END SOLUTION


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
        # BEGIN SOLUTION 11.4
        # A sink is a key without a value. One program of each row has seen it before the others.
        sink = tl.load(sinks + heads, mask=real & is_first, other=float("-inf"))
        top = sink.to(tl.float32) * LOG2E
        total += 1.0  # where the sink is -inf, it shrinks to 0 at the first key
        # END SOLUTION
    return top, total, acc


# ANCHOR_END: start_state


# ANCHOR: capped
@triton.jit
def scaled_scores(products, scale, softcap):
    """Scores in units of log2(e) of the products of queries and keys. softcap: a number or None."""
    if softcap is None:
        return products * (scale * LOG2E)
    else:
        # BEGIN SOLUTION 11.4
        # tanh(x) = 1 - 2 / (exp(2 x) + 1), which no large x can make NaN.
        power = tl.exp2(products * (scale / softcap * 2.0 * LOG2E))
        return (1.0 - 2.0 / (power + 1.0)) * (softcap * LOG2E)
        # END SOLUTION


# ANCHOR_END: capped


# ANCHOR: sees
@triton.jit
def sees(positions, keys, window, WINDOWED: tl.constexpr):
    """Which of the keys at `keys` [TILE] the queries at `positions` [ROWS] see: [ROWS, TILE]."""
    # BEGIN SOLUTION 11.5
    distance = positions[:, None] - keys[None, :]
    visible = distance >= 0
    if WINDOWED:
        visible = visible & (distance < window)
    return visible
    # END SOLUTION


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
    # BEGIN SOLUTION 11.1
    dims = tl.arange(0, DIMS)
    keys = start + tl.arange(0, TILE)
    blocks = locate(table, keys, end, BLOCK_SIZE)
    for _ in tl.range(start, end, TILE):
        inside = keys < end
        mask = inside[:, None] & (dims < D)[None, :]
        slots = keys % BLOCK_SIZE * SLOT
        at = (blocks * key_stride + slots)[:, None] + dims[None, :]
        k = tl.load(key_blocks + at, mask=mask, other=0.0)
        at = (blocks * value_stride + slots)[:, None] + dims[None, :]
        v = tl.load(value_blocks + at, mask=mask, other=0.0)
        # The next tile's blocks are looked up a turn ahead: its loads need not wait for their addresses.
        next_keys = keys + TILE
        blocks = locate(table, next_keys, end, BLOCK_SIZE)

        products = tl.dot(q, tl.trans(k), input_precision="ieee")
        scores = scaled_scores(products, scale, softcap)
        visible = inside[None, :]
        if CAUSAL:
            visible = visible & sees(positions, keys, window, WINDOWED)
        scores = tl.where(visible, scores, float("-inf"))

        new_top = tl.maximum(top, tl.max(scores, axis=1))
        # A row that has seen nothing has no largest score; -inf - -inf would be NaN.
        base = tl.where(new_top > float("-inf"), new_top, 0.0)
        shrink = tl.exp2(top - base)
        weights = tl.exp2(scores - base[:, None])
        total = total * shrink + tl.sum(weights, axis=1)
        acc = acc * shrink[:, None]
        acc = tl.dot(weights.to(v.dtype), v, acc, input_precision="ieee")
        top = new_top
        keys = next_keys
    # END SOLUTION
    return top, total, acc


# ANCHOR_END: attend_keys
