"""The walk goes from the last tile of keys to the first; what is hidden gets -inf by an addition, the
state is kept in columns [queries, 1], and weights are of e.

The reference walks upwards, selects, and has vectors and powers of two.
"""

import triton
import triton.language as tl

from .tiles import is_kept, is_visible, key_head_of, load_rows, store_rows, visible_keys

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def online_update(scores, values, peak, total, acc, scale, MAY_HIDE: tl.constexpr):
    """Take one more tile of keys into the softmax of each query (Milakov and Gimelshein 2018).

    scores: [queries, keys] float32, -inf where hidden, not scaled yet; values: [keys, BLOCK_D]. The
    state, all float32: peak [queries], the largest of the scaled scores so far; total [queries], the sum
    of 2 ** (scaled score - peak); acc [queries, BLOCK_D], the sum of the values with these weights.
    scale: turns a score into an exponent of 2. MAY_HIDE: a query may have seen nothing so far; its peak
    stays -inf, its total 0. Returns the new state.
    """
    # scale is for exponents of 2 in this design too, and its inverse brings scores back to those of e.
    natural = scores * (scale / LOG2_E)
    new_peak = tl.maximum(peak, tl.max(natural, 1, keep_dims=True))
    origin = tl.maximum(new_peak, -3.0e38)
    weights = tl.exp(natural - origin)
    decay = tl.exp(peak - origin)
    acc = acc * decay + tl.dot(weights.to(values.dtype), values, input_precision="ieee")
    return new_peak, total * decay + tl.sum(weights, 1, keep_dims=True), acc


@triton.jit
def attend_keys(
    queries,
    k,
    v,
    k_stride,
    v_stride,
    block_mask,
    mask_columns,
    start_m,
    begin,
    end,
    tq,
    tk,
    window,
    scale,
    peak,
    total,
    acc,
    EDGE: tl.constexpr,
    CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr,
    MASK_BLOCK: tl.constexpr,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Take the key tiles that start at begin, begin + BLOCK_N, ... below end into the softmax.

    queries: the tile at start_m, [BLOCK_M, BLOCK_D]. k, v: one head's [tk, D] with these strides.
    EDGE: some query may not see all keys of these tiles, or keys end in one: `is_visible` says which
    are seen, and the query in row i stands at position tk - tq + start_m + i. Without EDGE no score is
    masked. MASK_BLOCK: 0 if there is no block mask; with one, only tiles that `is_kept` keeps are
    loaded. Returns the state of `online_update`.
    """
    positions = tk - tq + start_m + tl.arange(0, BLOCK_M)
    tiles = tl.cdiv(end - begin, BLOCK_N)
    for number in range(tiles):
        start = begin + (tiles - 1 - number) * BLOCK_N
        kept = True
        if MASK_BLOCK:
            kept = is_kept(block_mask, start_m, start, mask_columns, MASK_BLOCK)
        if kept:
            values = load_rows(v, v_stride, start, tk, BLOCK_N, D, BLOCK_D, EDGE)
            keys = load_rows(k, k_stride, start, tk, BLOCK_N, D, BLOCK_D, EDGE)
            scores = tl.dot(queries, tl.trans(keys), input_precision="ieee")
            if EDGE:
                columns = start + tl.arange(0, BLOCK_N)
                seen = is_visible(positions[:, None], columns[None, :], tk, window, CAUSAL, WINDOW)
                scores += tl.where(seen, 0.0, float("-inf"))
            peak, total, acc = online_update(scores, values, peak, total, acc, scale, EDGE)
    return peak, total, acc


# Lengths differ from prompt to prompt: no compilation for each that is 1 or a multiple of 16.
@triton.jit(do_not_specialize=["tq", "tk", "window", "mask_columns"])
def forward_kernel(
    q,
    k,
    v,
    out,
    lse,
    block_mask,
    q_strides,
    k_strides,
    v_strides,
    out_strides,
    tq,
    tk,
    window,
    mask_columns,
    scale,
    GROUP: tl.constexpr,
    CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr,
    MASK_BLOCK: tl.constexpr,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Program (tile, head, batch) writes out and lse of one query tile.

    Strides: of batch, row and head. GROUP: query heads to a key head. WINDOW: whether there is one.
    """
    # The tiles that see most start first, so that none of them is left for the end.
    start_m = (tl.num_programs(0) - 1 - tl.program_id(0)) * BLOCK_M
    # A program's numbers are int32, and so would be their product with a stride.
    head = tl.cast(tl.program_id(1), tl.int64)
    batch = tl.cast(tl.program_id(2), tl.int64)
    key_head = key_head_of(head, GROUP)
    q += batch * q_strides[0] + head * q_strides[2]
    k += batch * k_strides[0] + key_head * k_strides[2]
    v += batch * v_strides[0] + key_head * v_strides[2]
    out += batch * out_strides[0] + head * out_strides[2]
    lse += (batch * tl.num_programs(1) + head) * tq
    begin, full_begin, full_end, end = 0, 0, tk // BLOCK_N * BLOCK_N, tk
    if CAUSAL:
        first = tk - tq + start_m
        last = tl.minimum(first + BLOCK_M, tk) - 1
        begin, full_begin, full_end, end = visible_keys(first, last, tk, window, WINDOW, BLOCK_N)
    if MASK_BLOCK > 0:  # one walk with a look at the mask before every tile
        full_begin, full_end = begin, begin
    # queries: this program's tile. peak, total, acc: the state of `online_update` before any key. scale:
    # turns a score into an exponent of 2 from here on.
    queries = load_rows(q, q_strides[1], start_m, tq, BLOCK_M, D, BLOCK_D, True)
    peak = tl.full([BLOCK_M, 1], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M, 1], tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    scale *= LOG2_E

    if WINDOW:
        peak, total, acc = attend_keys(
            queries, k, v, k_strides[1], v_strides[1], block_mask, mask_columns, start_m,
            begin, full_begin, tq, tk, window, scale, peak, total, acc,
            True, CAUSAL, WINDOW, MASK_BLOCK, D, BLOCK_D, BLOCK_M, BLOCK_N,
        )  # fmt: skip
    # The tiles that every query sees whole, of which a block mask leaves none.
    if MASK_BLOCK == 0:
        peak, total, acc = attend_keys(
            queries, k, v, k_strides[1], v_strides[1], block_mask, mask_columns, start_m,
            full_begin, full_end, tq, tk, window, scale, peak, total, acc,
            False, CAUSAL, WINDOW, MASK_BLOCK, D, BLOCK_D, BLOCK_M, BLOCK_N,
        )  # fmt: skip
    peak, total, acc = attend_keys(
        queries, k, v, k_strides[1], v_strides[1], block_mask, mask_columns, start_m,
        full_end, end, tq, tk, window, scale, peak, total, acc,
        True, CAUSAL, WINDOW, MASK_BLOCK, D, BLOCK_D, BLOCK_M, BLOCK_N,
    )  # fmt: skip

    rows = start_m + tl.arange(0, BLOCK_M)
    inverse = tl.where(total > 0.0, 1.0 / tl.where(total > 0.0, total, 1.0), 0.0)
    store_rows(out, out_strides[1], start_m, tq, acc * inverse, BLOCK_M, D, BLOCK_D)
    logarithm = peak + tl.log(total)  # of nothing: -inf and -inf
    tl.store(lse + rows[:, None], logarithm, mask=rows[:, None] < tq)
