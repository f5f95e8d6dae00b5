"""A row meets its keys from the last tile to the first, and each tile's blocks are looked
up when they are needed."""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def load_rows(q, index, heads, real, stride, D: tl.constexpr, DIMS: tl.constexpr):
    """Queries as a tile [ROWS, DIMS]: head heads[r] of token index[r], or 0 where real[r] is False.

    A token is `stride` numbers long in q. Dimensions from D on are 0.
    """
    dims = tl.arange(0, DIMS)
    at = (index * stride + heads * D)[:, None] + dims[None, :]
    return tl.load(q + at, mask=real[:, None] & (dims < D)[None, :], other=0.0)


@triton.jit
def store_rows(out, rows, real, total, acc, D: tl.constexpr, DIMS: tl.constexpr):
    """Write acc / total of the real rows to rows of `out` [.., D]. A row that saw no key becomes 0."""
    dims = tl.arange(0, DIMS)
    # With any key the total is 1 or more: the largest score weighs 1.
    result = acc / tl.maximum(total, 1.0)[:, None]
    mask = real[:, None] & (dims < D)[None, :]
    tl.store(out + rows[:, None] * D + dims[None, :], result.to(out.dtype.element_ty), mask=mask)


@triton.jit
def locate(table, keys, end, BLOCK_SIZE: tl.constexpr):
    """In which blocks of the pool the keys at these positions lie: [TILE] int64.

    table: one sequence's block numbers. keys: [TILE] positions. From `end` on there are no keys; the
    table may hold anything there, and is not read.
    """
    return tl.load(table + keys // BLOCK_SIZE, mask=keys < end, other=0).to(tl.int64)


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
        # A sink is a key without a value. One program of each row has seen it before the others.
        sink = tl.load(sinks + heads, mask=real & is_first, other=float("-inf"))
        top = sink.to(tl.float32) * LOG2E
        total += 1.0  # where the sink is -inf, it shrinks to 0 at the first key
    return top, total, acc


@triton.jit
def scaled_scores(products, scale, softcap):
    """Scores in units of log2(e) of the products of queries and keys. softcap: a number or None."""
    if softcap is None:
        return products * (scale * LOG2E)
    else:
        # tanh(x) = 1 - 2 / (exp(2 x) + 1), which no large x can make NaN.
        power = tl.exp2(products * (scale / softcap * 2.0 * LOG2E))
        return (1.0 - 2.0 / (power + 1.0)) * (softcap * LOG2E)


@triton.jit
def sees(positions, keys, window, WINDOWED: tl.constexpr):
    """Which of the keys at `keys` [TILE] the queries at `positions` [ROWS] see: [ROWS, TILE]."""
    distance = positions[:, None] - keys[None, :]
    visible = distance >= 0
    if WINDOWED:
        visible = visible & (distance < window)
    return visible


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
    """The state of the rows q [ROWS, DIMS] after the keys start..end, TILE of them at a time.

    key_blocks, value_blocks: the pool from this program's key head on; a block is key_stride or
    value_stride numbers long, a slot SLOT numbers. CAUSAL: a row sees what `sees` says; otherwise each
    row sees them all. A row that has seen no key has a top of -inf and a total of 0.
    """
    top, total, acc = state
    dims = tl.arange(0, DIMS)
    count = tl.cdiv(end - start, TILE)
    for turn in range(count):
        keys = start + (count - 1 - turn) * TILE + tl.arange(0, TILE)
        there = keys < end
        blocks = locate(table, keys, end, BLOCK_SIZE)
        inner = (keys - keys // BLOCK_SIZE * BLOCK_SIZE) * SLOT
        mask = there[:, None] & (dims[None, :] < D)
        k = tl.load(
            key_blocks + (blocks * key_stride + inner)[:, None] + dims[None, :],
            mask=mask,
            other=0.0,
        )
        scores = scaled_scores(tl.dot(q, k.T, input_precision="ieee"), scale, softcap)
        seen = there[None, :]
        if CAUSAL:
            seen = seen & sees(positions, keys, window, WINDOWED)
        scores = tl.where(seen, scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        nothing = higher == float("-inf")
        weights = tl.where(seen, tl.exp2(scores - tl.where(nothing, 0.0, higher)[:, None]), 0.0)
        shrink = tl.where(nothing, 1.0, tl.exp2(top - tl.where(nothing, 0.0, higher)))
        v = tl.load(
            value_blocks + (blocks * value_stride + inner)[:, None] + dims[None, :],
            mask=mask,
            other=0.0,
        )
        total = total * shrink + tl.sum(weights, 1)
        acc = acc * shrink[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        top = higher
    return top, total, acc
