# Lab 10, your part: task 10.6. The rest is given.
"""The backward kernel of the queries: one query tile a program, over the key tiles that it sees.

dQ = dS K * scale with dS = P * (dP - delta), as `backward_keys.py` explains. The walk is that of the
forward kernel; there is no softmax to build any more, since lse is known.
"""

import triton
import triton.language as tl

from .backward_keys import load_delta, load_lse
from .tiles import is_kept, is_visible, key_head_of, load_rows, store_rows, visible_keys

LOG2_E = tl.constexpr(1.4426950408889634)


# ANCHOR: gather_keys
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
    # TODO 10.6: your code here (the reference: 18 lines).
    raise NotImplementedError(
        "triton_flash_attention task 10.6: not implemented yet; see chapter FlashAttention in Triton"
    )


# ANCHOR_END: gather_keys


# ANCHOR: query_kernel
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
    # TODO 10.6: your code here (the reference: 5 lines).
    raise NotImplementedError(
        "triton_flash_attention task 10.6: not implemented yet; see chapter FlashAttention in Triton"
    )
    if WINDOW:
        dq_acc = gather_keys(
            queries, grads, exponents, deltas, k, v, k_strides[1], v_strides[1],
            block_mask, mask_columns, start_m, begin, full_begin, tq, tk, window,
            scale * LOG2_E, dq_acc,
            True, CAUSAL, WINDOW, MASK_BLOCK, D, BLOCK_D, BLOCK_M, BLOCK_N,
        )  # fmt: skip
    # The tiles that every query sees whole.
    # TODO 10.6: your code here (the reference: 7 lines).
    raise NotImplementedError(
        "triton_flash_attention task 10.6: not implemented yet; see chapter FlashAttention in Triton"
    )
    dq_acc = gather_keys(
        queries, grads, exponents, deltas, k, v, k_strides[1], v_strides[1],
        block_mask, mask_columns, start_m, full_end, end, tq, tk, window,
        scale * LOG2_E, dq_acc,
        True, CAUSAL, WINDOW, MASK_BLOCK, D, BLOCK_D, BLOCK_M, BLOCK_N,
    )  # fmt: skip
    # TODO 10.6: your code here (the reference: 1 line).
    raise NotImplementedError(
        "triton_flash_attention task 10.6: not implemented yet; see chapter FlashAttention in Triton"
    )


# ANCHOR_END: query_kernel
