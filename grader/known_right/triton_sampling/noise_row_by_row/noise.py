"""Another design: a program of `noise_kernel` goes over a whole row, and logarithms are repaired.

The reference has a program for each tile of a row, and a series where u is small. Here log(1 - u) is
multiplied by what 1 - u has lost in rounding (Goldberg 1991, theorem 4).
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

FAR_FROM_TOKENS = tl.constexpr(0x9E3779B9)
LARGEST_UNIFORM = tl.constexpr(1 - 2.0**-24)
SMALL = tl.constexpr(1 / 16)


@triton.jit
def hash_32(x):
    """Scramble each uint32 (lowbias32 of C. Wellons' hash prospector, 2018)."""
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def row_key(seed, step):
    """One uint32 for a seed and a step, both int64: both halves of the seed count."""
    mixed = hash_32(seed.to(tl.uint32) ^ hash_32((seed >> 32).to(tl.uint32)))
    return hash_32(step.to(tl.uint32) ^ mixed ^ FAR_FROM_TOKENS)


@triton.jit
def token_bits(tokens, key):
    """32 random bits for each token of a row with this key."""
    return hash_32(hash_32(tokens.to(tl.uint32)) ^ key)


if triton.knobs.runtime.interpret:

    @triton.jit
    def fast_log(x):
        return tl.log(x)

else:
    from triton.language.extra.cuda import libdevice

    @triton.jit
    def fast_log(x):
        """One instruction and a product, where `tl.log` takes some 40. Absolute error about 2e-7."""
        return libdevice.fast_logf(x)


@triton.jit
def race_time(bits):
    """E = -log(1 - u), exponentially distributed float32, with u = (bits + 1/2) / 2**32.

    u is at most LARGEST_UNIFORM, so that E is finite. Where u is small, 1 - u has lost most of its
    digits: below SMALL it is the series u + u**2 / 2 + ... + u**5 / 5.
    """
    uniform = tl.minimum((bits + 0.5) * 2.0**-32, LARGEST_UNIFORM)
    rest = 1.0 - uniform
    lost = 1.0 - rest
    repaired = -tl.log(rest) * (uniform / tl.where(lost > 0, lost, 1.0))
    return tl.where(lost > 0, repaired, uniform)


@triton.jit
def noise_kernel(seeds, steps, out, vocab, BLOCK: tl.constexpr):
    """out[row, token] = the token's Gumbel noise. Program (row), over tiles of BLOCK tokens."""
    row = tl.program_id(0).to(tl.int64)
    key = row_key(tl.load(seeds + row), tl.load(steps + row))
    out += row * vocab
    for start in range(0, vocab, BLOCK):
        tokens = start + tl.arange(0, BLOCK)
        times = race_time(token_bits(tokens, key))
        tl.store(out + tokens, -tl.log(times), mask=tokens < vocab)


def gumbel_noise(seeds: Tensor, steps: Tensor, vocab: int) -> Tensor:
    """Standard Gumbel noise [n, vocab] float32 for seeds, steps [n] int64.

    To look at and to test: the sampler makes the noise of a token where it needs it.
    """
    out = torch.empty((len(seeds), vocab), dtype=torch.float32, device=seeds.device)
    noise_kernel[(len(seeds),)](seeds, steps, out, vocab, BLOCK=512)
    return out
