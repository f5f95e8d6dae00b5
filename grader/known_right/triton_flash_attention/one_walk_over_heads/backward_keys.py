"""One walk over the queries of a key tile, with the heads of the group inside of it; each tile is masked
or not by its place. The reference walks three times for each head.
"""

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
def queries_that_see(first, last, tq, offset, window, WINDOW: tl.constexpr, BLOCK_M: tl.constexpr):
    """Which queries a causal key tile visits, whose keys are first to last. Compare `visible_keys`.

    offset: the position of query 0, possibly negative. Returns begin <= full_begin <= full_end, and end:
    tiles of BLOCK_M queries from begin below end hold every query that sees a key of the tile, and
    those from full_begin up to full_end are all whose queries see all of it, a tile that tq cuts off not
    among them. The first three are multiples of BLOCK_M.
    """
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
    keys = load_rows(k, k_strides[1], start_n, tk, BLOCK_N, D, BLOCK_D, True)
    values = load_rows(v, v_strides[1], start_n, tk, BLOCK_N, D, BLOCK_D, True)
    dk_acc = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    dv_acc = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    columns = start_n + tl.arange(0, BLOCK_N)
    for start in range(begin, end, BLOCK_M):
        kept = True
        if MASK_BLOCK:
            kept = is_kept(block_mask, start, start_n, mask_columns, MASK_BLOCK)
        if kept:
            rows = start + tl.arange(0, BLOCK_M)
            is_edge = (start < full_begin) | (start >= full_end)
            for member in range(GROUP):
                head = key_head * GROUP + member
                row = (batch * tl.num_programs(1) * GROUP + head) * tq
                queries = load_rows(q + head * q_strides[2], q_strides[1], start, tq,
                                    BLOCK_M, D, BLOCK_D, True)  # fmt: skip
                grads = load_rows(grad_out + head * grad_strides[2], grad_strides[1], start, tq,
                                  BLOCK_M, D, BLOCK_D, True)  # fmt: skip
                exponents = tl.dot(queries, keys.T, input_precision="ieee") * (scale * LOG2_E)
                probs = tl.exp2(exponents - load_lse(lse + row, start, tq, BLOCK_M)[:, None])
                if is_edge:
                    positions = tk - tq + rows
                    seen = is_visible(
                        positions[:, None], columns[None, :], tk, window, CAUSAL, WINDOW
                    )
                    probs = tl.where(seen, probs, 0.0)
                dv_acc += tl.dot(probs.T.to(grads.dtype), grads, input_precision="ieee")
                dp = tl.dot(grads, values.T, input_precision="ieee")
                ds = probs * (dp - load_delta(delta + row, start, tq, BLOCK_M)[:, None])
                dk_acc += tl.dot(ds.T.to(queries.dtype), queries, input_precision="ieee")
    store_rows(dk, dk_strides[1], start_n, tk, dk_acc * scale, BLOCK_N, D, BLOCK_D)
    store_rows(dv, dk_strides[1], start_n, tk, dv_acc, BLOCK_N, D, BLOCK_D)
