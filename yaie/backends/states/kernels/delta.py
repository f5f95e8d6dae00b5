"""The gated delta rule.

    delta_step_kernel      a sequence's few tokens one by one
    delta_prepare_kernel   of each chunk what does not depend on the state before it
    delta_chunks_kernel    a sequence's chunks one after the other

A chunk's tokens write k_t u_t^T. With A_ts = beta_t left_ts (k_t . k_s) for s < t, and G_t the decay
from the chunk's start to t,

    (I + A) U = beta V - (beta G K) S        so U = new - erased S
    new = (I + A)^-1 beta V                  erased = (I + A)^-1 beta G K

(the WY form of https://arxiv.org/abs/2406.06484, with decays of https://arxiv.org/abs/2412.06464).
"""

import triton
import triton.language as tl

from yaie.backends.states.kernels.tiles import FEW, sequence_of, span_of, what_is_left

FEW_TOKENS = tl.constexpr(FEW)
SMALL = tl.constexpr(16)
"""Side of the blocks that are inverted row by row."""


@triton.jit(do_not_specialize=["n", "num_tokens"])
def delta_step_kernel(
    out, q, k, v, log_decay, beta, pool, starts, slots, is_fresh, n, num_tokens, q_stride,
    q_head, k_stride, k_head, v_stride, v_head, decay_stride, beta_stride, slot_stride,
    V_HEADS: tl.constexpr, GROUP: tl.constexpr, D_K: tl.constexpr, D_V: tl.constexpr,
    BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr,
):  # fmt: skip
    """Program (block, value head, sequence): BLOCK_V columns of a state, through FEW tokens at most."""
    head, seq = tl.program_id(1), tl.program_id(2)
    begin, end = span_of(seq, starts)
    if end - begin > FEW_TOKENS:
        return
    of_k = tl.arange(0, BLOCK_K)
    of_v = tl.program_id(0) * BLOCK_V + tl.arange(0, BLOCK_V)
    in_k, in_v = of_k < D_K, of_v < D_V
    if end > begin:
        cell = of_k[:, None] * D_V + of_v[None, :]
        at = pool + tl.load(slots + seq) * slot_stride + head * (D_K * D_V) + cell
        real = in_k[:, None] & in_v[None, :]
        has_state = tl.load(is_fresh + seq) == 0
        state = tl.load(at, mask=real & has_state, other=0.0)
        for row in range(begin, end):
            of_head = head // GROUP
            key = tl.load(k + row * k_stride + of_head * k_head + of_k, mask=in_k, other=0.0)
            query = tl.load(q + row * q_stride + of_head * q_head + of_k, mask=in_k, other=0.0)
            value = tl.load(v + row * v_stride + head * v_head + of_v, mask=in_v, other=0.0)
            rate = tl.load(beta + row * beta_stride + head)
            key, query = key.to(tl.float32)[:, None], query.to(tl.float32)[:, None]
            state *= tl.exp(tl.load(log_decay + row * decay_stride + head))
            change = rate * (value.to(tl.float32) - tl.sum(state * key, axis=0))
            state += key * change[None, :]
            read = tl.sum(state * query, axis=0)
            at_out = out + (row * V_HEADS + head) * D_V + of_v
            tl.store(at_out, read.to(out.dtype.element_ty), mask=in_v)
        tl.store(at, state, mask=real)
    if seq == n - 1:  # rows of no sequence
        for row in range(end, num_tokens):
            at_out = out + (row * V_HEADS + head) * D_V + of_v
            tl.store(at_out, tl.zeros([BLOCK_V], out.dtype.element_ty), mask=in_v)


@triton.jit
def inverse(A, TOKENS: tl.constexpr, PRECISION: tl.constexpr):
    """(I + A)^-1 of a strictly lower triangular A [TOKENS, TOKENS], TOKENS 64.

    Blocks of SMALL rows on the diagonal are inverted row by row, all at once. Then twice two
    neighbours D1, D2 become one: below its diagonal it has -D2 A21 D1. Each entry is bounded by what
    the rule itself does; powers of A, which also lead to the inverse, can be as large as 10^17.
    """
    BLOCKS: tl.constexpr = TOKENS // SMALL
    block = tl.arange(0, BLOCKS)
    same = block[:, None, None, None] == block[None, None, :, None]
    split = tl.reshape(A, [BLOCKS, SMALL, BLOCKS, SMALL])
    small = -tl.sum(tl.where(same, split, 0.0), axis=2)  # [block, row, column]
    row = tl.arange(0, SMALL)[None, :, None]
    for i in tl.static_range(1, SMALL):
        # Row i of the inverse: -A_i, and -A_ij times the rows above.
        factors = tl.sum(tl.where(row == i, small, 0.0), axis=1)  # [block, column]
        above = tl.sum(factors[:, :, None] * tl.where(row < i, small, 0.0), axis=1)
        small = tl.where(row == i, (factors + above)[:, None, :], small)
    spread = tl.where(same, small[:, :, None, :], 0.0)
    tokens = tl.arange(0, TOKENS)
    t, s = tokens[:, None], tokens[None, :]
    D = tl.reshape(spread, [TOKENS, TOKENS]) + tl.where(t == s, 1.0, 0.0)
    for doubling in tl.static_range(2):
        SIDE: tl.constexpr = SMALL << doubling
        below = (t // SIDE == s // SIDE + 1) & (t // SIDE % 2 == 1)
        A21 = tl.where(below, A, 0.0)
        product = tl.dot(D, A21, input_precision=PRECISION)
        D -= tl.dot(product, D, input_precision=PRECISION)
    return D


@triton.jit(do_not_specialize=["n", "num_tokens"])
def delta_prepare_kernel(
    new, erased, scores, from_start, to_end, q, k, v, log_decay, beta, starts, n, num_tokens,
    q_stride, q_head, k_stride, k_head, v_stride, v_head, decay_stride, beta_stride,
    V_HEADS: tl.constexpr, GROUP: tl.constexpr, D_K: tl.constexpr, D_V: tl.constexpr,
    BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr, TOKENS: tl.constexpr, SEQS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Program (value head, chunk). Writes, of each token: new [V_HEADS, D_V], erased [V_HEADS, D_K], its
    scores of the chunk's tokens [V_HEADS, TOKENS], and what is left from_start and to_end."""
    head = tl.program_id(0)
    _, begin, end, first = sequence_of(tl.program_id(1), starts, n, TOKENS, SEQS)
    if (end - begin <= FEW_TOKENS) | (first >= end):
        return
    tokens = first + tl.arange(0, TOKENS)
    row = tokens.to(tl.int64)
    is_token = tokens < end
    of_k, of_v, of_s = tl.arange(0, BLOCK_K), tl.arange(0, BLOCK_V), tl.arange(0, TOKENS)
    mask = is_token[:, None] & (of_k < D_K)[None, :]
    at = k + row[:, None] * k_stride + head // GROUP * k_head + of_k[None, :]
    keys = tl.load(at, mask=mask, other=0.0)
    at = q + row[:, None] * q_stride + head // GROUP * q_head + of_k[None, :]
    queries = tl.load(at, mask=mask, other=0.0)
    rate = tl.load(beta + row * beta_stride + head, mask=is_token, other=0.0)
    decay = tl.load(log_decay + row * decay_stride + head, mask=is_token, other=0.0)
    left = what_is_left(decay, TOKENS)
    since = tl.exp(tl.cumsum(decay, axis=0))
    until = tl.sum(tl.where(of_s[:, None] == TOKENS - 1, left, 0.0), axis=0)

    out = row * V_HEADS + head
    tl.store(from_start + out, since, mask=is_token)
    tl.store(to_end + out, until, mask=is_token)
    seen = tl.dot(queries, tl.trans(keys), input_precision=PRECISION) * left
    tl.store(scores + out[:, None] * TOKENS + of_s[None, :], seen, mask=is_token[:, None])

    A = tl.dot(keys, tl.trans(keys), input_precision=PRECISION) * left * rate[:, None]
    T = inverse(tl.where(of_s[:, None] > of_s[None, :], A, 0.0), TOKENS, PRECISION)
    side = keys.to(tl.float32) * (rate * since)[:, None]
    result = tl.dot(T, side, input_precision=PRECISION)
    tl.store(erased + out[:, None] * D_K + of_k[None, :], result, mask=mask)
    for block in tl.static_range(0, D_V, BLOCK_V):
        column = block + of_v
        mask = is_token[:, None] & (column < D_V)[None, :]
        at = v + row[:, None] * v_stride + head * v_head + column[None, :]
        side = tl.load(at, mask=mask, other=0.0).to(tl.float32) * rate[:, None]
        result = tl.dot(T, side, input_precision=PRECISION)
        tl.store(new + out[:, None] * D_V + column[None, :], result, mask=mask)


@triton.jit(do_not_specialize=["n", "num_tokens"])
def delta_chunks_kernel(
    out, new, erased, scores, from_start, to_end, q, k, pool, starts, slots, is_fresh, n,
    num_tokens, q_stride, q_head, k_stride, k_head, slot_stride, V_HEADS: tl.constexpr,
    GROUP: tl.constexpr, D_K: tl.constexpr, D_V: tl.constexpr, BLOCK_K: tl.constexpr,
    BLOCK_V: tl.constexpr, TOKENS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Program (block, value head, sequence): BLOCK_V columns of a state, through all chunks. What is
    read of the state is its product with queries; what is written are the keys' with U."""
    head, seq = tl.program_id(1), tl.program_id(2)
    begin, end = span_of(seq, starts)
    if end - begin <= FEW_TOKENS:
        return
    of_k, of_s = tl.arange(0, BLOCK_K), tl.arange(0, TOKENS)
    of_v = tl.program_id(0) * BLOCK_V + tl.arange(0, BLOCK_V)
    in_k, in_v = of_k < D_K, of_v < D_V
    place = pool + tl.load(slots + seq) * slot_stride + head * (D_K * D_V)
    cell = of_k[:, None] * D_V + of_v[None, :]
    real = in_k[:, None] & in_v[None, :]
    has_state = tl.load(is_fresh + seq) == 0
    state = tl.load(place + cell, mask=real & has_state, other=0.0)
    last = tl.where(seq == n - 1, num_tokens, end)  # rows of no sequence become 0
    for first in range(begin, last, TOKENS):
        row = first + of_s
        is_token = row < end
        own = row * V_HEADS + head
        mask = is_token[:, None] & in_k[None, :]
        at = erased + own[:, None] * D_K + of_k[None, :]
        w = tl.load(at, mask=mask, other=0.0)
        at = q + row[:, None] * q_stride + head // GROUP * q_head + of_k[None, :]
        queries = tl.load(at, mask=mask, other=0.0).to(tl.float32)
        at = k + row[:, None] * k_stride + head // GROUP * k_head + of_k[None, :]
        keys = tl.load(at, mask=mask, other=0.0).to(tl.float32)
        at = scores + own[:, None] * TOKENS + of_s[None, :]
        seen = tl.load(at, mask=is_token[:, None], other=0.0)
        mask = is_token[:, None] & in_v[None, :]
        u = tl.load(new + own[:, None] * D_V + of_v[None, :], mask=mask, other=0.0)
        since = tl.load(from_start + own, mask=is_token, other=0.0)
        until = tl.load(to_end + own, mask=is_token, other=0.0)

        u -= tl.dot(w, state, input_precision=PRECISION)
        read = tl.dot(queries, state, input_precision=PRECISION) * since[:, None]
        read = tl.dot(seen, u, read, input_precision=PRECISION)
        at_out = out + own[:, None] * D_V + of_v[None, :]
        mask = (row < last)[:, None] & in_v[None, :]
        tl.store(at_out, read.to(out.dtype.element_ty), mask=mask)
        if first < end:
            final = tl.minimum(end, first + TOKENS) - 1
            whole = tl.load(from_start + final * V_HEADS + head)
            state = tl.dot(
                tl.trans(keys), u * until[:, None], state * whole, input_precision=PRECISION
            )
    tl.store(place + cell, state, mask=real)
