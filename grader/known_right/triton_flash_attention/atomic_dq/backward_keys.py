"""dq, dk and dv of one key tile and one query head in one program; sums across programs are atomic."""

import triton
import triton.language as tl

from .tiles import load_rows


@triton.jit
def add_rows(
    base, stride, start, length, tile, ROWS: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr
):
    rows, columns = tl.arange(0, ROWS), tl.arange(0, BLOCK_D)
    inside = (start + rows < length)[:, None] & (columns < D)[None, :]
    tl.atomic_add(base + (start + rows)[:, None] * stride + columns[None, :], tile, mask=inside)


@triton.jit
def all_kernel(
    q,
    k,
    v,
    grad_out,
    lse,
    delta,
    dq,
    dk,
    dv,
    block_mask,
    q_strides,
    k_strides,
    v_strides,
    tq,
    tk,
    window,
    mask_columns,
    scale,
    GROUP: tl.constexpr,
    CAUSAL: tl.constexpr,
    MASK_BLOCK: tl.constexpr,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    start_n = tl.program_id(0) * BLOCK_N
    head, batch = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    heads = tl.num_programs(1)
    columns = (start_n + tl.arange(0, BLOCK_N))[None, :]
    keys = load_rows(
        k + batch * k_strides[0] + (head // GROUP) * k_strides[2], k_strides[1], start_n, tk,
        BLOCK_N, D, BLOCK_D, True,
    )  # fmt: skip
    values = load_rows(
        v + batch * v_strides[0] + (head // GROUP) * v_strides[2], v_strides[1], start_n, tk,
        BLOCK_N, D, BLOCK_D, True,
    )  # fmt: skip
    to_keys = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    to_values = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    begin, end = 0, tq
    if CAUSAL:
        begin = tl.maximum(0, start_n - (tk - tq)) // BLOCK_M * BLOCK_M
        end = tl.minimum(tq, tl.minimum(start_n + BLOCK_N, tk) - 1 + window - (tk - tq))
    for start in range(begin, end, BLOCK_M):
        wanted = True
        if MASK_BLOCK > 0:
            entry = (start // MASK_BLOCK) * mask_columns + start_n // MASK_BLOCK
            wanted = tl.load(block_mask + entry) > 0
        if wanted:
            rows = start + tl.arange(0, BLOCK_M)
            queries = load_rows(
                q + batch * q_strides[0] + head * q_strides[2], q_strides[1], start, tq,
                BLOCK_M, D, BLOCK_D, True,
            )  # fmt: skip
            place = (batch * tq * heads + head) * D
            grads = load_rows(grad_out + place, heads * D, start, tq, BLOCK_M, D, BLOCK_D, True)
            row = (batch * heads + head) * tq + rows
            log_total = tl.load(lse + row, mask=rows < tq, other=0.0)
            scores = tl.dot(queries, keys.T, input_precision="ieee") * scale
            probs = tl.exp(scores - log_total[:, None])
            edge = (start + BLOCK_M > tq) | (start_n + BLOCK_N > tk)
            if CAUSAL:
                first = start + tk - tq
                edge = edge | (start_n + BLOCK_N - 1 > first)
                edge = edge | (start_n <= first + BLOCK_M - 1 - window)
            if edge:
                seen = (rows < tq)[:, None] & (columns < tk)
                if CAUSAL:
                    position = (rows + tk - tq)[:, None]
                    seen = seen & (columns <= position) & (columns > position - window)
                probs = tl.where(seen, probs, 0.0)
            dp = tl.dot(grads, values.T, input_precision="ieee")
            ds = probs * (dp - tl.load(delta + row, mask=rows < tq, other=0.0)[:, None]) * scale
            to_values += tl.dot(probs.T.to(grads.dtype), grads, input_precision="ieee")
            to_keys += tl.dot(ds.T.to(grads.dtype), queries, input_precision="ieee")
            to_queries = tl.dot(ds.to(grads.dtype), keys, input_precision="ieee")
            add_rows(dq + place, heads * D, start, tq, to_queries, BLOCK_M, D, BLOCK_D)
    kv_heads = heads // GROUP
    place = (batch * tk * kv_heads + head // GROUP) * D
    add_rows(dk + place, kv_heads * D, start_n, tk, to_keys, BLOCK_N, D, BLOCK_D)
    add_rows(dv + place, kv_heads * D, start_n, tk, to_values, BLOCK_N, D, BLOCK_D)
