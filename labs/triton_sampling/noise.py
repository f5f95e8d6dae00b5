# Lab 12, your part: task 12.1. The rest is given.
"""The noise of lab 1, made inside a kernel: a function of (seed, step, token), never stored.

The same hash, bit for bit, so that a request draws the same tokens here and there. Lab 1 adds Gumbel
noise G = -log(E) to logits; here tokens race: the one with the smallest E / weight arrives first, and
-log(E / weight) is its logit plus G. It is the same token, for one logarithm instead of two.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

FAR_FROM_TOKENS = tl.constexpr(0x9E3779B9)
LARGEST_UNIFORM = tl.constexpr(1 - 2.0**-24)
SMALL = tl.constexpr(1 / 16)


# ANCHOR: hash
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


# ANCHOR_END: hash


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


# ANCHOR: race_time
@triton.jit
def race_time(bits):
    """E = -log(1 - u), exponentially distributed float32, with u = (bits + 1/2) / 2**32.

    u is at most LARGEST_UNIFORM, so that E is finite. Where u is small, 1 - u has lost most of its
    digits: below SMALL it is the series u + u**2 / 2 + ... + u**5 / 5.
    """
    # TODO 12.1: your code here (the reference: 5 lines).
    raise NotImplementedError(
        "triton_sampling task 12.1: not implemented yet; see chapter Sampling in Triton"
    )


# ANCHOR_END: race_time


@triton.jit
def noise_kernel(seeds, steps, out, vocab, BLOCK: tl.constexpr):
    """out[row, token] = the token's Gumbel noise. Program (row, tile of BLOCK tokens)."""
    # TODO 12.1: your code here (the reference: 5 lines).
    raise NotImplementedError(
        "triton_sampling task 12.1: not implemented yet; see chapter Sampling in Triton"
    )


def gumbel_noise(seeds: Tensor, steps: Tensor, vocab: int) -> Tensor:
    """Standard Gumbel noise [n, vocab] float32 for seeds, steps [n] int64.

    To look at and to test: the sampler makes the noise of a token where it needs it.
    """
    out = torch.empty((len(seeds), vocab), dtype=torch.float32, device=seeds.device)
    # TODO 12.1: your code here (the reference: 1 line).
    raise NotImplementedError(
        "triton_sampling task 12.1: not implemented yet; see chapter Sampling in Triton"
    )
    return out
