"""One walk over all key tiles that any query sees, which looks at each tile's limits for whether to mask
it, with natural exponents."""

import triton
import triton.language as tl

from .tiles import load_rows, store_rows


@triton.jit
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
    start_m, head = tl.program_id(0) * BLOCK_M, tl.program_id(1).to(tl.int64)
    batch = tl.program_id(2).to(tl.int64)
    key_head = head // GROUP
    rows = start_m + tl.arange(0, BLOCK_M)
    positions = rows + (tk - tq)
    last = tl.minimum(start_m + BLOCK_M, tq) - 1 + (tk - tq)
    begin, end = 0, tk
    if CAUSAL:
        end = tl.minimum(tk, last + 1)
    if WINDOW:
        begin = tl.maximum(0, start_m + tk - tq - window + 1) // BLOCK_N * BLOCK_N

    queries = load_rows(
        q + batch * q_strides[0] + head * q_strides[2], q_strides[1], start_m, tq,
        BLOCK_M, D, BLOCK_D, True,
    )  # fmt: skip
    # The total is one more column of the accumulator: the values' sum beside that of ones.
    peak = tl.full([BLOCK_M, 1], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M, 1], tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    for start in range(begin, end, BLOCK_N):
        wanted = True
        if MASK_BLOCK > 0:
            entry = (start_m // MASK_BLOCK) * mask_columns + start // MASK_BLOCK
            wanted = tl.load(block_mask + entry) > 0
        if wanted:
            keys = load_rows(
                k + batch * k_strides[0] + key_head * k_strides[2], k_strides[1], start, tk,
                BLOCK_N, D, BLOCK_D, True,
            )  # fmt: skip
            values = load_rows(
                v + batch * v_strides[0] + key_head * v_strides[2], v_strides[1], start, tk,
                BLOCK_N, D, BLOCK_D, True,
            )  # fmt: skip
            scores = scale * tl.dot(queries, tl.trans(keys), input_precision="ieee")
            crossed = start + BLOCK_N > tk
            if CAUSAL:
                crossed = crossed | (start + BLOCK_N - 1 > start_m + (tk - tq))
            if WINDOW:
                crossed = crossed | (start + window <= last)
            if crossed:
                columns = (start + tl.arange(0, BLOCK_N))[None, :]
                hidden = columns >= tk
                if CAUSAL:
                    hidden = hidden | (columns > positions[:, None])
                if WINDOW:
                    hidden = hidden | (columns + window <= positions[:, None])
                scores = tl.where(hidden, float("-inf"), scores)
            best = tl.maximum(peak, tl.max(scores, 1)[:, None])
            finite = tl.where(best > float("-inf"), best, 0.0)
            weights = tl.exp(scores - finite)
            shrink = tl.exp(peak - finite)
            total = total * shrink + tl.sum(weights, 1)[:, None]
            acc = acc * shrink
            acc += tl.dot(weights.to(v.dtype.element_ty), values, input_precision="ieee")
            peak = best
    acc = tl.where(total > 0, acc / tl.where(total > 0, total, 1.0), 0.0)
    store_rows(
        out + batch * out_strides[0] + head * out_strides[2], out_strides[1], start_m, tq, acc,
        BLOCK_M, D, BLOCK_D,
    )  # fmt: skip
    logarithm = peak + tl.log(tl.where(total > 0, total, 1.0))
    place = (batch * tl.num_programs(1) + head) * tq + rows
    tl.store(lse + place, tl.reshape(logarithm, [BLOCK_M]), mask=rows < tq)
