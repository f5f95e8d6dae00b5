"""The backward kernels of keys and values, on the helpers of this design's `tiles.py`."""

import triton
import triton.language as tl

from .tiles import is_kept, is_visible, load_rows, store_rows

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def delta_kernel(
    out,
    grad_out,
    delta,
    out_strides,
    grad_strides,
    tq,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
):
    """delta [n, heads, tq] float32: rowsum(grad_out * out). Program (tile, head, batch)."""
    start_m = tl.program_id(0) * BLOCK_M
    head = tl.cast(tl.program_id(1), tl.int64)
    batch = tl.cast(tl.program_id(2), tl.int64)
    out += batch * out_strides[0] + head * out_strides[2]
    grad_out += batch * grad_strides[0] + head * grad_strides[2]
    outs = load_rows(out, out_strides[1], start_m, tq, BLOCK_M, D, BLOCK_D, True).to(tl.float32)
    grads = load_rows(grad_out, grad_strides[1], start_m, tq, BLOCK_M, D, BLOCK_D, True).to(
        tl.float32
    )
    rows = start_m + tl.arange(0, BLOCK_M)
    delta += (batch * tl.num_programs(1) + head) * tq
    tl.store(delta + rows, tl.sum(outs * grads, 1), mask=rows < tq)


@triton.jit
def load_lse(lse, start_m, tq, BLOCK_M: tl.constexpr):
    """lse of a query tile as exponents of 2; +inf, which makes all probabilities 0, where it is -inf
    (the query sees nothing) and from tq on."""
    rows = start_m + tl.arange(0, BLOCK_M)
    values = tl.load(lse + rows, mask=rows < tq, other=float("inf"))
    return tl.where(values == float("-inf"), float("inf"), values * LOG2_E)


@triton.jit
def load_delta(delta, start_m, tq, BLOCK_M: tl.constexpr):
    """delta of a query tile; 0 from tq on."""
    rows = start_m + tl.arange(0, BLOCK_M)
    return tl.load(delta + rows, mask=rows < tq, other=0.0)


@triton.jit
def queries_that_see(
    start_n, tq, tk, window, WINDOW: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    """(begin, full_begin, full_end, end) of the walk over queries of the key tile at start_n."""
    first, last, offset = start_n, tl.minimum(start_n + BLOCK_N, tk) - 1, tk - tq
    begin = tl.maximum(first - offset, 0) // BLOCK_M * BLOCK_M
    full_begin = tl.cdiv(tl.maximum(last - offset, 0), BLOCK_M) * BLOCK_M
    end = tq
    full_end = tq // BLOCK_M * BLOCK_M
    if WINDOW:
        end = tl.minimum(last + window - offset, tq)
        full_end = tl.minimum(tl.maximum(first + window - offset, 0), tq) // BLOCK_M * BLOCK_M
    full_end = tl.maximum(full_end, begin)
    full_begin = tl.minimum(full_begin, full_end)
    return begin, full_begin, full_end, end


@triton.jit
def gather_queries(
    keys,
    values,
    q,
    grad_out,
    lse,
    delta,
    q_stride,
    grad_stride,
    block_mask,
    mask_columns,
    start_n,
    begin,
    end,
    tq,
    tk,
    window,
    scale,
    dk,
    dv,
    EDGE: tl.constexpr,
    CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr,
    MASK_BLOCK: tl.constexpr,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Add to dk and dv [BLOCK_N, BLOCK_D] what the query tiles from begin below end give.

    keys, values: the tile at start_n. q, grad_out: one head's [tq, D] with these strides. scale: turns a
    score into an exponent of 2. EDGE: some query may not see all of the keys, or queries end in a
    tile. dk is not multiplied by the softmax's scale yet. Returns dk and dv.
    """
    columns = start_n + tl.arange(0, BLOCK_N)
    for start in range(begin, end, BLOCK_M):
        kept = True
        if MASK_BLOCK:
            kept = is_kept(block_mask, start // MASK_BLOCK, start_n // MASK_BLOCK, mask_columns)
        if kept:
            # Keys go down, queries across: no tile of probabilities has to be turned.
            queries = load_rows(q, q_stride, start, tq, BLOCK_M, D, BLOCK_D, EDGE)
            exponents = tl.dot(keys, queries.T, input_precision="ieee") * scale
            probs = tl.exp2(exponents - load_lse(lse, start, tq, BLOCK_M)[None, :])
            rows = start + tl.arange(0, BLOCK_M)
            if EDGE:
                positions = tk - tq + rows
                behind = positions[None, :] - columns[:, None]
                seen = is_visible(behind, columns[:, None] < tk, window, CAUSAL, WINDOW)
                probs = tl.where(seen, probs, 0.0)
            grads = load_rows(grad_out, grad_stride, start, tq, BLOCK_M, D, BLOCK_D, EDGE)
            dv = tl.dot(probs.to(grads.dtype), grads, dv, input_precision="ieee")
            dp = tl.dot(values, grads.T, input_precision="ieee")
            deltas = load_delta(delta, start, tq, BLOCK_M)
            ds = probs * (dp - deltas[None, :])
            dk = tl.dot(ds.to(queries.dtype), queries, dk, input_precision="ieee")
    return dk, dv


@triton.jit
def key_kernel(
    q,
    k,
    v,
    grad_out,
    lse,
    delta,
    dk,
    dv,
    block_mask,
    q_strides,
    k_strides,
    v_strides,
    grad_strides,
    dk_strides,
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
    """Program (tile, key head, batch) writes dk and dv of one key tile, summed over its query heads.

    dk_strides are those of dv too; the others are as in `forward_kernel`.
    """
    start_n = tl.program_id(0) * BLOCK_N
    key_head = tl.cast(tl.program_id(1), tl.int64)
    batch = tl.cast(tl.program_id(2), tl.int64)
    q += batch * q_strides[0]
    k += batch * k_strides[0] + key_head * k_strides[2]
    v += batch * v_strides[0] + key_head * v_strides[2]
    grad_out += batch * grad_strides[0]
    dk += batch * dk_strides[0] + key_head * dk_strides[2]
    dv += batch * dk_strides[0] + key_head * dk_strides[2]

    begin, full_begin, full_end, end = 0, 0, tq // BLOCK_M * BLOCK_M, tq
    if CAUSAL:
        begin, full_begin, full_end, end = queries_that_see(
            start_n, tq, tk, window, WINDOW, BLOCK_M, BLOCK_N
        )
    if MASK_BLOCK > 0:
        full_begin, full_end = begin, begin

    # keys, values: this program's tiles. dk_acc, dv_acc: the sums, of nothing so far.
    keys = load_rows(k, k_strides[1], start_n, tk, BLOCK_N, D, BLOCK_D, True)
    values = load_rows(v, v_strides[1], start_n, tk, BLOCK_N, D, BLOCK_D, True)
    dk_acc = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    dv_acc = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    for member in range(GROUP):
        # q_head, grad_head: where this query head begins in q and grad_out; row: in lse and in delta.
        head = key_head * GROUP + member
        q_head = q + head * q_strides[2]
        grad_head = grad_out + head * grad_strides[2]
        row = (batch * tl.num_programs(1) * GROUP + head) * tq
        if CAUSAL:
            dk_acc, dv_acc = gather_queries(
                keys, values, q_head, grad_head, lse + row, delta + row, q_strides[1], grad_strides[1],
                block_mask, mask_columns, start_n, begin, full_begin, tq, tk, window,
                scale * LOG2_E, dk_acc, dv_acc,
                True, CAUSAL, WINDOW, MASK_BLOCK, D, BLOCK_D, BLOCK_M, BLOCK_N,
            )  # fmt: skip
        # The tiles whose queries all see every key of this program.
        if MASK_BLOCK == 0:
            dk_acc, dv_acc = gather_queries(
                keys, values, q_head, grad_head, lse + row, delta + row, q_strides[1], grad_strides[1],
                block_mask, mask_columns, start_n, full_begin, full_end, tq, tk, window,
                scale * LOG2_E, dk_acc, dv_acc,
                False, CAUSAL, WINDOW, MASK_BLOCK, D, BLOCK_D, BLOCK_M, BLOCK_N,
            )  # fmt: skip
        dk_acc, dv_acc = gather_queries(
            keys, values, q_head, grad_head, lse + row, delta + row, q_strides[1], grad_strides[1],
            block_mask, mask_columns, start_n, full_end, end, tq, tk, window,
            scale * LOG2_E, dk_acc, dv_acc,
            True, CAUSAL, WINDOW, MASK_BLOCK, D, BLOCK_D, BLOCK_M, BLOCK_N,
        )  # fmt: skip
    store_rows(dk, dk_strides[1], start_n, tk, dk_acc * scale, BLOCK_N, D, BLOCK_D)
    store_rows(dv, dk_strides[1], start_n, tk, dv_acc, BLOCK_N, D, BLOCK_D)
