"""Mamba-2's selective scan.

    scan_step_kernel     a sequence's few tokens one by one
    scan_chunks_kernel   longer sequences, chunk after chunk

Within a chunk it is attention with weights (c_t . b_s) left_ts dt_s; what came before is read from the
state (https://arxiv.org/abs/2405.21060, section 6).
"""

import triton
import triton.language as tl

from yaie.backends.states.kernels.tiles import FEW, span_of, what_is_left

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
    if seq == n - 1:  # rows of no sequence
        for row in range(end, num_tokens):
            at_out = out + (row * HEADS + head) * P + of_p
            tl.store(at_out, tl.zeros([BLOCK_P], out.dtype.element_ty), mask=in_p)


@triton.jit(do_not_specialize=["n", "num_tokens"])
def scan_chunks_kernel(
    out, x, dt, a, b, c, d, pool, starts, slots, is_fresh, n, num_tokens, x_stride, x_head,
    dt_stride, b_stride, b_group, c_stride, c_group, slot_stride, HEADS: tl.constexpr,
    GROUP: tl.constexpr, P: tl.constexpr, N_STATE: tl.constexpr, HAS_D: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_N: tl.constexpr, TOKENS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Program (block, head, sequence): BLOCK_P rows of a state, through all chunks."""
    head, seq = tl.program_id(1), tl.program_id(2)
    begin, end = span_of(seq, starts)
    if end - begin <= FEW_TOKENS:
        return
    of_n, of_s = tl.arange(0, BLOCK_N), tl.arange(0, TOKENS)
    of_p = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    in_n, in_p = of_n < N_STATE, of_p < P
    cell = of_p[:, None] * N_STATE + of_n[None, :]
    place = pool + tl.load(slots + seq) * slot_stride + head * (P * N_STATE) + cell
    real = in_p[:, None] & in_n[None, :]
    has_state = tl.load(is_fresh + seq) == 0
    state = tl.load(place, mask=real & has_state, other=0.0)
    rate = tl.load(a + head)
    last = tl.where(seq == n - 1, num_tokens, end)  # rows of no sequence become 0
    for first in range(begin, last, TOKENS):
        tokens = first + of_s
        row = tokens[:, None]
        is_token = tokens < end
        mask = is_token[:, None] & in_n[None, :]
        at = b + row * b_stride + head // GROUP * b_group + of_n[None, :]
        writes = tl.load(at, mask=mask, other=0.0)
        at = c + row * c_stride + head // GROUP * c_group + of_n[None, :]
        reads = tl.load(at, mask=mask, other=0.0)
        mask = is_token[:, None] & in_p[None, :]
        at = x + row * x_stride + head * x_head + of_p[None, :]
        values = tl.load(at, mask=mask, other=0.0).to(tl.float32)
        steps = tl.load(dt + tokens * dt_stride + head, mask=is_token, other=0.0)
        decay = steps * rate
        left = what_is_left(decay, TOKENS)
        since = tl.exp(tl.cumsum(decay, axis=0))
        until = tl.sum(tl.where(of_s[:, None] == TOKENS - 1, left, 0.0), axis=0)

        seen = tl.dot(reads, tl.trans(writes), input_precision=PRECISION) * left
        written = values * steps[:, None]
        total = tl.dot(reads.to(tl.float32), tl.trans(state), input_precision=PRECISION)
        total = tl.dot(seen, written, total * since[:, None], input_precision=PRECISION)
        if HAS_D:
            total += tl.load(d + head) * values
        at_out = out + (row * HEADS + head) * P + of_p[None, :]
        mask = (tokens < last)[:, None] & in_p[None, :]
        tl.store(at_out, total.to(out.dtype.element_ty), mask=mask)
        whole = tl.exp(tl.sum(decay, axis=0))
        state = tl.dot(
            tl.trans(written * until[:, None]), writes.to(tl.float32), state * whole,
            input_precision=PRECISION,
        )  # fmt: skip
    tl.store(place, state, mask=real)
