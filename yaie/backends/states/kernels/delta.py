"""The gated delta rule, for sequences of more than FEW tokens. Lab 22's kernel takes the others.

    delta_prepare_kernel   of each chunk what does not depend on the state before it
    delta_chunks_kernel    a sequence's chunks one after the other

A chunk's tokens write k_t u_t^T. With A_ts = beta_t left_ts (k_t . k_s) for s < t, and G_t what is left
at t of the state S before the chunk,

    (I + A) U = beta (V - G K S)        out = G Q S + left (Q K^T) U

(the WY form of https://arxiv.org/abs/2406.06484, with decays of https://arxiv.org/abs/2412.06464).
(I + A)^-1 and left (Q K^T) are prepared, all chunks at once.
"""

import triton
import triton.language as tl

from yaie.backends.states.kernels.tiles import (
    FEW,
    clear_behind,
    plus_product,
    sequence_of,
    span_of,
    what_is_left,
)

FEW_TOKENS = tl.constexpr(FEW)
SMALL = tl.constexpr(16)
"""Side of the blocks that are inverted row by row."""


@triton.jit
def joined(D, A, t, s, SIDE: tl.constexpr, dtype: tl.constexpr):
    """D with the inverses of blocks of twice SIDE on its diagonal, from those of blocks of SIDE: below
    two neighbours D1, D2 there is -D2 A21 D1."""
    is_below = (t // SIDE == s // SIDE + 1) & (t // SIDE % 2 == 1)
    none = tl.zeros(D.shape, tl.float32)
    product = plus_product(none, D, tl.where(is_below, -A, 0.0), dtype)
    return plus_product(D, product, D, dtype)


@triton.jit
def inverse(A, TOKENS: tl.constexpr, dtype: tl.constexpr):
    """(I + A)^-1 of a strictly lower triangular A [TOKENS, TOKENS], TOKENS four times SMALL.

    Blocks of SMALL rows on the diagonal are inverted row by row, all at once, and then joined twice.
    Each entry on the way is bounded by what the rule itself does; powers of A, which lead to the inverse
    as well, can be as large as 10^17.
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
    D = joined(D, A, t, s, SMALL, dtype)
    return joined(D, A, t, s, 2 * SMALL, dtype)


@triton.jit(do_not_specialize=["n", "num_tokens"])
def delta_prepare_kernel(
    inverses, scores, from_start, to_end, q, k, log_decay, beta, starts, n, num_tokens,
    q_stride: tl.constexpr, q_head: tl.constexpr, k_stride: tl.constexpr, k_head: tl.constexpr,
    decay_stride: tl.constexpr, beta_stride: tl.constexpr, V_HEADS: tl.constexpr,
    GROUP: tl.constexpr, D_K: tl.constexpr, BLOCK_K: tl.constexpr, TOKENS: tl.constexpr,
    SEQS: tl.constexpr,
):  # fmt: skip
    """Program (value head, chunk). Writes, of each token and head: its rows [TOKENS] of the chunk's
    inverse and scores, what is left of the state, and what of the token is left at the chunk's end."""
    head = tl.program_id(0)
    _, begin, end, first = sequence_of(tl.program_id(1), starts, n, TOKENS, SEQS)
    if (end - begin <= FEW_TOKENS) | (first >= end):
        return
    start = first.to(tl.int64)
    of_k, of_s = tl.arange(0, BLOCK_K), tl.arange(0, TOKENS)
    is_token = of_s < end - first
    mask = is_token[:, None] & (of_k < D_K)[None, :]
    at = k + start * k_stride + head // GROUP * k_head
    keys = tl.load(at + of_s[:, None] * k_stride + of_k[None, :], mask=mask, other=0.0)
    gates = log_decay + start * decay_stride + head
    decay = tl.load(gates + of_s * decay_stride, mask=is_token, other=0.0)
    gates = beta + start * beta_stride + head
    rate = tl.load(gates + of_s * beta_stride, mask=is_token, other=0.0)
    left = what_is_left(decay, TOKENS)

    own = start * V_HEADS + head
    of_token = of_s * V_HEADS
    tl.store(from_start + own + of_token, tl.exp(tl.cumsum(decay, axis=0)), mask=is_token)
    until = tl.sum(tl.where(of_s[:, None] == TOKENS - 1, left, 0.0), axis=0)
    tl.store(to_end + own + of_token, until, mask=is_token)

    square = of_s[:, None] * (V_HEADS * TOKENS) + of_s[None, :]
    none = tl.zeros([TOKENS, TOKENS], tl.float32)
    A = plus_product(none, keys, tl.trans(keys), keys.dtype) * left * rate[:, None]
    A = inverse(tl.where(of_s[:, None] > of_s[None, :], A, 0.0), TOKENS, keys.dtype)
    tl.store(inverses + own * TOKENS + square, A, mask=is_token[:, None])
    at = q + start * q_stride + head // GROUP * q_head
    queries = tl.load(at + of_s[:, None] * q_stride + of_k[None, :], mask=mask, other=0.0)
    seen = plus_product(none, queries, tl.trans(keys), keys.dtype) * left
    tl.store(scores + own * TOKENS + square, seen, mask=is_token[:, None])


@triton.jit(do_not_specialize=["n", "num_tokens"])
def delta_chunks_kernel(
    out, inverses, scores, from_start, to_end, q, k, v, beta, pool, starts, slots, is_fresh, n,
    num_tokens, q_stride: tl.constexpr, q_head: tl.constexpr, k_stride: tl.constexpr,
    k_head: tl.constexpr, v_stride: tl.constexpr, v_head: tl.constexpr,
    beta_stride: tl.constexpr, slot_stride, V_HEADS: tl.constexpr, GROUP: tl.constexpr,
    D_K: tl.constexpr, D_V: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr,
    TOKENS: tl.constexpr,
):  # fmt: skip
    """Program (block, value head, sequence): BLOCK_V columns of a state, through all chunks."""
    head, seq = tl.program_id(1), tl.program_id(2)
    begin, end = span_of(seq, starts)
    of_v = tl.program_id(0) * BLOCK_V + tl.arange(0, BLOCK_V)
    in_v = of_v < D_V
    if seq == n - 1:
        clear_behind(out + head * D_V + of_v, in_v, end, num_tokens, V_HEADS * D_V)
    if end - begin <= FEW_TOKENS:
        return
    of_k, of_s = tl.arange(0, BLOCK_K), tl.arange(0, TOKENS)
    in_k = of_k < D_K
    place = pool + tl.load(slots + seq) * slot_stride + head * (D_K * D_V)
    place += of_k[:, None] * D_V + of_v[None, :]
    real = in_k[:, None] & in_v[None, :]
    has_state = tl.load(is_fresh + seq) == 0
    state = tl.load(place, mask=real & has_state, other=0.0)
    for first in range(begin, end, TOKENS):
        # Pointers to the chunk's first token; the offsets behind it are constants.
        own = first * V_HEADS + head
        is_token = of_s < end - first
        in_tile = is_token[:, None] & in_v[None, :]
        mask = is_token[:, None] & in_k[None, :]
        at = k + first * k_stride + head // GROUP * k_head
        keys = tl.load(at + of_s[:, None] * k_stride + of_k[None, :], mask=mask, other=0.0)
        none = tl.zeros([TOKENS, BLOCK_V], tl.float32)
        held = plus_product(none, keys, state, keys.dtype)
        at = v + first * v_stride + head * v_head
        values = tl.load(at + of_s[:, None] * v_stride + of_v[None, :], mask=in_tile, other=0.0)
        rate = tl.load(
            beta + first * beta_stride + head + of_s * beta_stride, mask=is_token, other=0.0
        )
        since = tl.load(from_start + own + of_s * V_HEADS, mask=is_token, other=0.0)
        wanted = rate[:, None] * (values.to(tl.float32) - since[:, None] * held)
        square = of_s[:, None] * (V_HEADS * TOKENS) + of_s[None, :]
        solver = tl.load(inverses + own * TOKENS + square, mask=is_token[:, None], other=0.0)
        u = plus_product(none, solver, wanted, keys.dtype)

        at = q + first * q_stride + head // GROUP * q_head
        queries = tl.load(at + of_s[:, None] * q_stride + of_k[None, :], mask=mask, other=0.0)
        read = plus_product(none, queries, state, keys.dtype) * since[:, None]
        seen = tl.load(scores + own * TOKENS + square, mask=is_token[:, None], other=0.0)
        read = plus_product(read, seen, u, keys.dtype)
        at = out + own * D_V + of_s[:, None] * (V_HEADS * D_V) + of_v[None, :]
        tl.store(at, read.to(out.dtype.element_ty), mask=in_tile)
        final = tl.minimum(end - first, TOKENS) - 1
        state *= tl.load(from_start + own + final * V_HEADS)
        until = tl.load(to_end + own + of_s * V_HEADS, mask=is_token, other=0.0)
        state = plus_product(state, tl.trans(keys), u * until[:, None], keys.dtype)
    tl.store(place, state, mask=real)
