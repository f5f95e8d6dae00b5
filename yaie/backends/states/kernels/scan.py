"""Mamba-2's selective scan.

    scan_step_kernel     a sequence's few tokens one by one
    scan_chunks_kernel   longer sequences, chunk after chunk

Within a chunk it is attention with weights (c_t . b_s) left_ts dt_s; what came before is read from the
state (https://arxiv.org/abs/2405.21060, section 6).
"""

import triton
import triton.language as tl

from yaie.backends.states.kernels.tiles import (
    FEW,
    clear_behind,
    plus_product,
    span_of,
    what_is_left,
)

FEW_TOKENS = tl.constexpr(FEW)


@triton.jit(do_not_specialize=["n", "num_tokens"])
def scan_step_kernel(
    out, x, dt, a, b, c, d, pool, starts, slots, is_fresh, n, num_tokens, x_stride, x_head,
    dt_stride, b_stride, b_group, c_stride, c_group, slot_stride, HEADS: tl.constexpr,
    GROUP: tl.constexpr, P: tl.constexpr, N_STATE: tl.constexpr, HAS_D: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Program (block, head, sequence): BLOCK_P rows of a state, through FEW tokens at most."""
    head, seq = tl.program_id(1), tl.program_id(2)
    begin, end = span_of(seq, starts)
    if end - begin > FEW_TOKENS:
        return
    of_n = tl.arange(0, BLOCK_N)
    of_p = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    in_n, in_p = of_n < N_STATE, of_p < P
    if end > begin:
        cell = of_p[:, None] * N_STATE + of_n[None, :]
        at = pool + tl.load(slots + seq) * slot_stride + head * (P * N_STATE) + cell
        real = in_p[:, None] & in_n[None, :]
        has_state = tl.load(is_fresh + seq) == 0
        state = tl.load(at, mask=real & has_state, other=0.0)
        rate = tl.load(a + head)
        if HAS_D:
            straight = tl.load(d + head)
        for row in range(begin, end):
            of_group = head // GROUP
            value = tl.load(x + row * x_stride + head * x_head + of_p, mask=in_p, other=0.0)
            write = tl.load(b + row * b_stride + of_group * b_group + of_n, mask=in_n, other=0.0)
            read = tl.load(c + row * c_stride + of_group * c_group + of_n, mask=in_n, other=0.0)
            value = value.to(tl.float32)
            step = tl.load(dt + row * dt_stride + head)
            state *= tl.exp(step * rate)
            state += (step * value)[:, None] * write.to(tl.float32)[None, :]
            total = tl.sum(state * read.to(tl.float32)[None, :], axis=1)
            if HAS_D:
                total += straight * value
            at_out = out + (row * HEADS + head) * P + of_p
            tl.store(at_out, total.to(out.dtype.element_ty), mask=in_p)
        tl.store(at, state, mask=real)
    if seq == n - 1:
        clear_behind(out + head * P + of_p, in_p, end, num_tokens, HEADS * P)


@triton.jit(do_not_specialize=["n", "num_tokens"])
def scan_chunks_kernel(
    out, x, dt, a, b, c, d, pool, starts, slots, is_fresh, n, num_tokens,
    x_stride: tl.constexpr, x_head: tl.constexpr, dt_stride: tl.constexpr,
    b_stride: tl.constexpr, b_group: tl.constexpr, c_stride: tl.constexpr,
    c_group: tl.constexpr, slot_stride, HEADS: tl.constexpr, GROUP: tl.constexpr,
    P: tl.constexpr, N_STATE: tl.constexpr, HAS_D: tl.constexpr, BLOCK_P: tl.constexpr,
    BLOCK_N: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """Program (block, head, sequence): BLOCK_P rows of a state, transposed, through all chunks."""
    head, seq = tl.program_id(1), tl.program_id(2)
    begin, end = span_of(seq, starts)
    if end - begin <= FEW_TOKENS:
        return
    of_n, of_s = tl.arange(0, BLOCK_N), tl.arange(0, TOKENS)
    of_p = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    in_n, in_p = of_n < N_STATE, of_p < P
    cell = of_p[None, :] * N_STATE + of_n[:, None]
    place = pool + tl.load(slots + seq) * slot_stride + head * (P * N_STATE) + cell
    real = in_p[None, :] & in_n[:, None]
    has_state = tl.load(is_fresh + seq) == 0
    state = tl.load(place, mask=real & has_state, other=0.0)
    rate = tl.load(a + head)
    for first in range(begin, end, TOKENS):
        # Pointers to the chunk's first token; the offsets behind it are constants.
        is_token = of_s < end - first
        mask = is_token[:, None] & in_n[None, :]
        at = dt + first * dt_stride + head
        steps = tl.load(at + of_s * dt_stride, mask=is_token, other=0.0)
        decay = steps * rate
        since = tl.exp(tl.cumsum(decay, axis=0))
        at = c + first * c_stride + head // GROUP * c_group
        reads = tl.load(at + of_s[:, None] * c_stride + of_n[None, :], mask=mask, other=0.0)
        none = tl.zeros([TOKENS, BLOCK_P], tl.float32)
        total = plus_product(none, reads, state, reads.dtype) * since[:, None]

        at = b + first * b_stride + head // GROUP * b_group
        writes = tl.load(at + of_s[:, None] * b_stride + of_n[None, :], mask=mask, other=0.0)
        left = what_is_left(decay, TOKENS)
        square = tl.zeros([TOKENS, TOKENS], tl.float32)
        seen = plus_product(square, reads, tl.trans(writes), reads.dtype) * left * steps[None, :]
        mask = is_token[:, None] & in_p[None, :]
        at = x + first * x_stride + head * x_head
        values = tl.load(at + of_s[:, None] * x_stride + of_p[None, :], mask=mask, other=0.0)
        total = plus_product(total, seen, values, reads.dtype)
        if HAS_D:
            total += tl.load(d + head) * values.to(tl.float32)
        at = out + (first * HEADS + head) * P + of_s[:, None] * (HEADS * P) + of_p[None, :]
        tl.store(at, total.to(out.dtype.element_ty), mask=mask)
        until = tl.sum(tl.where(of_s[:, None] == TOKENS - 1, left, 0.0), axis=0) * steps
        state *= tl.exp(tl.sum(decay, axis=0))
        written = until[:, None] * values.to(tl.float32)
        state = plus_product(state, tl.trans(writes), written, reads.dtype)
    tl.store(place, state, mask=real)
    if seq == n - 1:
        clear_behind(out + head * P + of_p, in_p, end, num_tokens, HEADS * P)
