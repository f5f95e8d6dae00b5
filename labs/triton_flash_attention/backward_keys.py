# Lab 10, your part: task 10.5. The rest is given.
"""The backward kernels: probabilities are recomputed from lse, tile by tile (Dao 2023, section 3.1).

With P the probabilities and dP = dO V^T: dV = P^T dO, dS = P * (dP - delta), dK = dS^T Q * scale and
dQ = dS K * scale, where delta = rowsum(dO * O). One kernel holds a key tile and walks over the queries
that see it; another holds a query tile and walks over its keys. Neither needs an atomic addition.
"""

import triton
import triton.language as tl

from .tiles import is_kept, is_visible, load_rows, store_rows

LOG2_E = tl.constexpr(1.4426950408889634)


# ANCHOR: delta_kernel
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


# ANCHOR_END: delta_kernel


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


# ANCHOR: queries_that_see
@triton.jit
def queries_that_see(first, last, tq, offset, window, WINDOW: tl.constexpr, BLOCK_M: tl.constexpr):
    """Which queries a causal key tile visits, whose keys are first to last. Compare `visible_keys`.

    offset: the position of query 0, possibly negative. Returns begin <= full_begin <= full_end, and end:
    tiles of BLOCK_M queries from begin below end hold every query that sees a key of the tile, and
    those from full_begin up to full_end are all whose queries see all of it, a tile that tq cuts off not
    among them. The first three are multiples of BLOCK_M.
    """
    # TODO 10.5: your code here (the reference: 10 lines).
    raise NotImplementedError(
        "triton_flash_attention task 10.5: not implemented yet; see chapter FlashAttention in Triton"
    )


# ANCHOR_END: queries_that_see


# ANCHOR: gather_queries
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
    # TODO 10.5: your code here (the reference: 21 lines).
    raise NotImplementedError(
        "triton_flash_attention task 10.5: not implemented yet; see chapter FlashAttention in Triton"
    )


# ANCHOR_END: gather_queries


# ANCHOR: key_kernel
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
        last = tl.minimum(start_n + BLOCK_N, tk) - 1
        begin, full_begin, full_end, end = queries_that_see(
            start_n, last, tq, tk - tq, window, WINDOW, BLOCK_M
        )
    if MASK_BLOCK > 0:
        full_begin, full_end = begin, begin

    # keys, values: this program's tiles. dk_acc, dv_acc: the sums, of nothing so far.
    # TODO 10.5: your code here (the reference: 4 lines).
    raise NotImplementedError(
        "triton_flash_attention task 10.5: not implemented yet; see chapter FlashAttention in Triton"
    )
    for member in range(GROUP):
        # q_head, grad_head: where this query head begins in q and grad_out; row: in lse and in delta.
        # TODO 10.5: your code here (the reference: 4 lines).
        raise NotImplementedError(
            "triton_flash_attention task 10.5: not implemented yet; see chapter FlashAttention in Triton"
        )
        if CAUSAL:
            dk_acc, dv_acc = gather_queries(
                keys, values, q_head, grad_head, lse + row, delta + row, q_strides[1], grad_strides[1],
                block_mask, mask_columns, start_n, begin, full_begin, tq, tk, window,
                scale * LOG2_E, dk_acc, dv_acc,
                True, CAUSAL, WINDOW, MASK_BLOCK, D, BLOCK_D, BLOCK_M, BLOCK_N,
            )  # fmt: skip
        # The tiles whose queries all see every key of this program.
        # TODO 10.5: your code here (the reference: 7 lines).
        raise NotImplementedError(
            "triton_flash_attention task 10.5: not implemented yet; see chapter FlashAttention in Triton"
        )
        dk_acc, dv_acc = gather_queries(
            keys, values, q_head, grad_head, lse + row, delta + row, q_strides[1], grad_strides[1],
            block_mask, mask_columns, start_n, full_end, end, tq, tk, window,
            scale * LOG2_E, dk_acc, dv_acc,
            True, CAUSAL, WINDOW, MASK_BLOCK, D, BLOCK_D, BLOCK_M, BLOCK_N,
        )  # fmt: skip
    # TODO 10.5: your code here (the reference: 2 lines).
    raise NotImplementedError(
        "triton_flash_attention task 10.5: not implemented yet; see chapter FlashAttention in Triton"
    )


# ANCHOR_END: key_kernel
