"""Keys go down and queries across, as in `backward_keys.py`, and dq is gathered turned over.

The reference has queries down. Exponents are of e here, and the values' product is made first.
"""

import triton
import triton.language as tl

from .backward_keys import load_delta, load_lse
from .tiles import is_kept, is_visible, key_head_of, load_rows, store_rows, visible_keys

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def gather_keys(
    queries,
    grads,
    lse,
    delta,
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
    dq,
    EDGE: tl.constexpr,
    CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr,
    MASK_BLOCK: tl.constexpr,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Add to dq [BLOCK_M, BLOCK_D] what the key tiles from begin below end give.

    queries, grads: the tile at start_m; lse (as exponents of 2), delta: [BLOCK_M]. The rest is as in
    `attend_keys`. dq is not multiplied by the softmax's scale yet. Returns it.
    """
    positions = tk - tq + start_m + tl.arange(0, BLOCK_M)
    for start in range(begin, end, BLOCK_N):
        kept = True
        if MASK_BLOCK:
            kept = is_kept(block_mask, start_m, start, mask_columns, MASK_BLOCK)
        if kept:
            values = load_rows(v, v_stride, start, tk, BLOCK_N, D, BLOCK_D, EDGE)
            difference = tl.dot(values, grads.T, input_precision="ieee") - delta[None, :]
            keys = load_rows(k, k_stride, start, tk, BLOCK_N, D, BLOCK_D, EDGE)
            exponents = tl.dot(keys, queries.T, input_precision="ieee") * scale - lse[None, :]
            if EDGE:
                columns = start + tl.arange(0, BLOCK_N)
                seen = is_visible(positions[None, :], columns[:, None], tk, window, CAUSAL, WINDOW)
                exponents = tl.where(seen, exponents, float("-inf"))
            ds = tl.exp(exponents * (1 / LOG2_E)) * difference
            dq += tl.dot(keys.T, ds.to(keys.dtype), input_precision="ieee")
    return dq


@triton.jit
def query_kernel(
    q,
    k,
    v,
    grad_out,
    lse,
    delta,
    dq,
    block_mask,
    q_strides,
    k_strides,
    v_strides,
    grad_strides,
    dq_strides,
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
    """Program (tile, head, batch) writes dq of one query tile. Arguments as in `forward_kernel`."""
    start_m = (tl.num_programs(0) - 1 - tl.program_id(0)) * BLOCK_M
    head = tl.cast(tl.program_id(1), tl.int64)
    batch = tl.cast(tl.program_id(2), tl.int64)
    key_head = key_head_of(head, GROUP)
    q += batch * q_strides[0] + head * q_strides[2]
    k += batch * k_strides[0] + key_head * k_strides[2]
    v += batch * v_strides[0] + key_head * v_strides[2]
    grad_out += batch * grad_strides[0] + head * grad_strides[2]
    dq += batch * dq_strides[0] + head * dq_strides[2]
    lse += (batch * tl.num_programs(1) + head) * tq
    delta += (batch * tl.num_programs(1) + head) * tq

    begin, full_begin, full_end, end = 0, 0, tk // BLOCK_N * BLOCK_N, tk
    if CAUSAL:
        first = tk - tq + start_m
        last = tl.minimum(first + BLOCK_M, tk) - 1
        begin, full_begin, full_end, end = visible_keys(first, last, tk, window, WINDOW, BLOCK_N)
    if MASK_BLOCK > 0:
        full_begin, full_end = begin, begin

    # queries, grads: this program's tiles. exponents, deltas: lse and delta of its queries, from
    # `load_lse` and `load_delta`. dq_acc: the sum, of nothing so far.
    queries = load_rows(q, q_strides[1], start_m, tq, BLOCK_M, D, BLOCK_D, True)
    grads = load_rows(grad_out, grad_strides[1], start_m, tq, BLOCK_M, D, BLOCK_D, True)
    exponents = load_lse(lse, start_m, tq, BLOCK_M)
    deltas = load_delta(delta, start_m, tq, BLOCK_M)
    dq_acc = tl.zeros([BLOCK_D, BLOCK_M], tl.float32)
    if WINDOW:
        dq_acc = gather_keys(
            queries, grads, exponents, deltas, k, v, k_strides[1], v_strides[1],
            block_mask, mask_columns, start_m, begin, full_begin, tq, tk, window,
            scale * LOG2_E, dq_acc,
            True, CAUSAL, WINDOW, MASK_BLOCK, D, BLOCK_D, BLOCK_M, BLOCK_N,
        )  # fmt: skip
    # The tiles that every query sees whole.
    if MASK_BLOCK == 0:
        dq_acc = gather_keys(
            queries, grads, exponents, deltas, k, v, k_strides[1], v_strides[1],
            block_mask, mask_columns, start_m, full_begin, full_end, tq, tk, window,
            scale * LOG2_E, dq_acc,
            False, CAUSAL, WINDOW, MASK_BLOCK, D, BLOCK_D, BLOCK_M, BLOCK_N,
        )  # fmt: skip
    dq_acc = gather_keys(
        queries, grads, exponents, deltas, k, v, k_strides[1], v_strides[1],
        block_mask, mask_columns, start_m, full_end, end, tq, tk, window,
        scale * LOG2_E, dq_acc,
        True, CAUSAL, WINDOW, MASK_BLOCK, D, BLOCK_D, BLOCK_M, BLOCK_N,
    )  # fmt: skip
    store_rows(dq, dq_strides[1], start_m, tq, (dq_acc * scale).T, BLOCK_M, D, BLOCK_D)
