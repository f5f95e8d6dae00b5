"""Causal convolutions whose last inputs are kept."""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from yaie.backends.states.kernels.tiles import sequence_of


@triton.jit
def finished(total, bias, channel, mask, BIAS: tl.constexpr, SILU: tl.constexpr):
    """Sums [..., channels], with bias and through SiLU if that is asked for."""
    if BIAS:
        total += tl.load(bias + channel, mask=mask, other=0.0).to(tl.float32)
    if SILU:
        total = total / (1.0 + tl.exp(-total))
    return total


@triton.jit(do_not_specialize=["n", "num_tokens"])
def conv_chunks_kernel(
    out, x, weight, bias, pool, starts, slots, is_fresh, n, num_tokens, channels, x_stride,
    slot_stride, WIDTH: tl.constexpr, BIAS: tl.constexpr, SILU: tl.constexpr,
    TOKENS: tl.constexpr, BLOCK: tl.constexpr, SEQS: tl.constexpr,
):  # fmt: skip
    """Program (block, tile): TOKENS tokens and BLOCK channels. Rows of no sequence become 0."""
    seq, begin, end, first = sequence_of(tl.program_id(1), starts, n, TOKENS, SEQS)
    last = tl.where(seq == n - 1, num_tokens, end)
    if first >= last:
        return
    local = tl.arange(0, TOKENS)
    tokens = first + local
    channel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = channel < channels
    is_token = tokens < end
    x += first.to(tl.int64) * x_stride  # from here on offsets fit 32 bits
    out += first.to(tl.int64) * channels
    has_tail = tl.load(is_fresh + seq) == 0
    tail = pool + tl.load(slots + seq) * slot_stride + channel * (WIDTH - 1)
    total = tl.zeros([TOKENS, BLOCK], tl.float32)
    for back in tl.static_range(WIDTH):
        at = tokens - back
        mask = (is_token & (at >= begin))[:, None] & inside[None, :]
        offsets = (local - back)[:, None] * x_stride + channel[None, :]
        value = tl.load(x + offsets, mask=mask, other=0.0).to(tl.float32)
        if back > 0 and first < begin + WIDTH - 1:
            kept = at - begin + WIDTH - 1
            mask = (is_token & (at < begin) & has_tail)[:, None] & inside[None, :]
            value += tl.load(tail[None, :] + kept[:, None], mask=mask, other=0.0).to(tl.float32)
        factor = tl.load(weight + channel * WIDTH + (WIDTH - 1 - back), mask=inside, other=0.0)
        total += value * factor.to(tl.float32)[None, :]
    total = finished(total, bias, channel, inside, BIAS, SILU)
    total = tl.where(is_token[:, None], total, 0.0)
    at = out + local[:, None] * channels + channel[None, :]
    tl.store(at, total.to(out.dtype.element_ty), mask=(tokens < last)[:, None] & inside[None, :])


@triton.jit(do_not_specialize=["n"])
def conv_tails_kernel(
    out, x, weight, bias, pool, starts, slots, is_fresh, n, channels, x_stride, slot_stride,
    WIDTH: tl.constexpr, BIAS: tl.constexpr, SILU: tl.constexpr, STEP: tl.constexpr,
    KEPT: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Program (block, sequence): the new tail of BLOCK channels. STEP: a sequence has one token, and
    what comes of it is computed here as well. EARLY: see `yaie.backends.early`."""
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()
    seq = tl.program_id(1)
    begin, end = tl.load(starts + seq), tl.load(starts + seq + 1)
    length = end - begin
    if length == 0:
        return
    channel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = channel < channels
    has_tail = tl.load(is_fresh + seq) == 0
    tail = pool + tl.load(slots + seq) * slot_stride + channel * (WIDTH - 1)
    place = tl.arange(0, KEPT)
    real = inside[:, None] & (place < WIDTH - 1)[None, :]
    # Counted from the sequence's first token; what is below 0 lies in the old tail.
    source = length - (WIDTH - 1) + place
    row = (begin + source).to(tl.int64)[None, :] * x_stride
    mask = real & (source >= 0)[None, :]
    new = tl.load(x + row + channel[:, None], mask=mask, other=0.0).to(tl.float32)
    mask = real & (source < 0)[None, :] & has_tail
    at = tail[:, None] + (source + WIDTH - 1)[None, :]
    new += tl.load(at, mask=mask, other=0.0).to(tl.float32)
    if STEP:
        old = tl.load(tail[:, None] + place[None, :], mask=real & has_tail, other=0.0)
        factor = tl.load(weight + channel[:, None] * WIDTH + place[None, :], mask=real, other=0.0)
        total = tl.sum(old.to(tl.float32) * factor.to(tl.float32), axis=1)
        value = tl.load(x + begin.to(tl.int64) * x_stride + channel, mask=inside, other=0.0)
        factor = tl.load(weight + channel * WIDTH + (WIDTH - 1), mask=inside, other=0.0)
        total += value.to(tl.float32) * factor.to(tl.float32)
        total = finished(total, bias, channel, inside, BIAS, SILU)
        at_out = out + begin.to(tl.int64) * channels + channel
        tl.store(at_out, total.to(out.dtype.element_ty), mask=inside)
    tl.debug_barrier()  # all threads have read the old tail
    tl.store(tail[:, None] + place[None, :], new.to(pool.dtype.element_ty), mask=real)
