"""Where a program's tokens lie, and how much of what they write is left."""

import triton
import triton.language as tl

FEW = 8
"""Tokens of a sequence up to which they are taken one by one."""
CHUNK = 64
"""Tokens at a time in longer sequences."""


@triton.jit
def sequence_of(tile, starts, n, TOKENS: tl.constexpr, SEQS: tl.constexpr):
    """Of a tile of TOKENS tokens its sequence, where that begins and ends, and the tile's first token.

    Sequence i owns the tiles from starts[i] // TOKENS + i on: as many as it needs, or one more. So
    there are num_tokens // TOKENS + n tiles, whatever the lengths. The last sequence's tiles reach to
    the last row, also where that belongs to no sequence.
    """
    all_seqs = tl.arange(0, SEQS)
    mask = all_seqs < n
    own = tl.load(starts + all_seqs, mask=mask, other=0) // TOKENS + all_seqs
    seq = tl.sum((mask & (own <= tile)).to(tl.int32), axis=0) - 1
    begin, end = tl.load(starts + seq), tl.load(starts + seq + 1)
    return seq, begin, end, begin + (tile - begin // TOKENS - seq) * TOKENS


@triton.jit
def span_of(seq, starts):
    """A sequence's first row and the one behind its last, int64, as what is multiplied by strides."""
    return tl.load(starts + seq).to(tl.int64), tl.load(starts + seq + 1).to(tl.int64)


@triton.jit
def clear_behind(out, mask, end, num_tokens, stride):
    """Zeros in the rows behind the last sequence, which belong to none."""
    for row in range(end, num_tokens):
        tl.store(out + row * stride, tl.zeros(out.shape, out.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["n", "num_tokens"])
def clear_behind_kernel(out, starts, n, num_tokens, ROW: tl.constexpr, BLOCK: tl.constexpr):
    """The same as a launch of its own. Program: BLOCK numbers of each of these rows, which have ROW."""
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    end = tl.load(starts + n).to(tl.int64)
    clear_behind(out + column, column < ROW, end, num_tokens, ROW)


@triton.jit
def what_is_left(log_decay, TOKENS: tl.constexpr):
    """[t, s]: of what token s writes, what is left at token t; 0 for t < s. Each is the exponential of a
    sum and not of a difference: a weak decay behind strong ones keeps its digits."""
    tokens = tl.arange(0, TOKENS)
    t, s = tokens[:, None], tokens[None, :]
    sums = tl.cumsum(tl.where(t > s, log_decay[:, None], 0.0), axis=0)
    return tl.where(t >= s, tl.exp(sums), 0.0)


@triton.jit
def plus_product(total, a, b, dtype: tl.constexpr):
    """total + a @ b. dtype: of the model's numbers. Tensor cores multiply numbers of 16 bits, and an
    operand in float32 counts there as the sum of two, which have twice as many digits. If the model's
    numbers are float32, they count as sums of two of TF32."""
    if dtype == tl.float32:
        return tl.dot(a, b, total, input_precision="tf32x3")
    a_high, b_high = a.to(dtype), b.to(dtype)
    if a.dtype == tl.float32:
        total = tl.dot((a - a_high.to(tl.float32)).to(dtype), b_high, total)
    if b.dtype == tl.float32:
        total = tl.dot(a_high, (b - b_high.to(tl.float32)).to(dtype), total)
    return tl.dot(a_high, b_high, total)
