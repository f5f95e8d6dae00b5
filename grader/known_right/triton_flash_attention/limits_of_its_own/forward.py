"""The forward kernel, on the helpers of this design's `tiles.py`."""

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
    new_peak = tl.maximum(peak, tl.max(scores, 1) * scale)
    origin = new_peak
    if MAY_HIDE:
        origin = tl.where(new_peak == float("-inf"), 0.0, new_peak)
    weights = tl.exp2(scores * scale - origin[:, None])
    decay = tl.exp2(peak - origin)
    total = total * decay + tl.sum(weights, 1)
    acc = acc * decay[:, None]
    acc = tl.dot(weights.to(values.dtype), values, acc, input_precision="ieee")
    return new_peak, total, acc


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
    for start in range(begin, end, BLOCK_N):
        kept = True
        if MASK_BLOCK:
            kept = is_kept(block_mask, start_m // MASK_BLOCK, start // MASK_BLOCK, mask_columns)
        if kept:
            keys = load_rows(k, k_stride, start, tk, BLOCK_N, D, BLOCK_D, EDGE)
            scores = tl.dot(queries, keys.T, input_precision="ieee")
            if EDGE:
                columns = start + tl.arange(0, BLOCK_N)
                behind = positions[:, None] - columns[None, :]
                seen = is_visible(behind, columns[None, :] < tk, window, CAUSAL, WINDOW)
                scores = tl.where(seen, scores, float("-inf"))
            values = load_rows(v, v_stride, start, tk, BLOCK_N, D, BLOCK_D, EDGE)
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
        begin, full_begin, full_end, end = visible_keys(
            start_m, tq, tk, window, WINDOW, BLOCK_M, BLOCK_N
        )
    if MASK_BLOCK > 0:  # one walk with a look at the mask before every tile
        full_begin, full_end = begin, begin
    # queries: this program's tile. peak, total, acc: the state of `online_update` before any key. scale:
    # turns a score into an exponent of 2 from here on.
    queries = load_rows(q, q_strides[1], start_m, tq, BLOCK_M, D, BLOCK_D, True)
    peak = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
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

    sees = total > 0.0
    divisor = tl.where(sees, total, 1.0)
    store_rows(out, out_strides[1], start_m, tq, acc / divisor[:, None], BLOCK_M, D, BLOCK_D)
    logarithm = tl.where(sees, (peak + tl.log2(divisor)) / LOG2_E, float("-inf"))
    rows = start_m + tl.arange(0, BLOCK_M)
    tl.store(lse + rows, logarithm, mask=rows < tq)
