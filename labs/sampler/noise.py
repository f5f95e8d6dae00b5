# Lab 1, your part: task 1.6. The rest is given.
"""Random numbers that depend on a request's seed and step alone, never on the batch around it.

A generator with state would give a row other numbers when its neighbours change. A hash of
(seed, step, token) has no state: the same request gets the same tokens alone, in a batch of 200,
and after a preemption.
"""

import torch
from torch import Tensor

_MASK = 0xFFFFFFFF
_FAR_FROM_TOKENS = 0x9E3779B9


# ANCHOR: hash
def hash_32(x: Tensor) -> Tensor:
    """Scramble the low 32 bits of each int64 (lowbias32 of C. Wellons' hash prospector, 2018)."""
    x = x & _MASK
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & _MASK
    x = ((x ^ (x >> 15)) * 0x846CA68B) & _MASK
    return x ^ (x >> 16)


def row_keys(seeds: Tensor, steps: Tensor) -> Tensor:
    """One 32-bit key [n] (in int64) for each (seed, step): both halves of the seed count."""
    # hash_32(0) is 0: without the constant, seed 0 at step t would have the key hash_32(t), which meets
    # the hash of token t, and token t would win.
    return hash_32(steps ^ hash_32(seeds ^ hash_32(seeds >> 32)) ^ _FAR_FROM_TOKENS)


# ANCHOR_END: hash


# ANCHOR: gumbel_noise
def gumbel_noise(seeds: Tensor, steps: Tensor, vocab: int) -> Tensor:
    """Standard Gumbel noise [n, vocab] float32, a function of (seed, step, token) only.

    seeds, steps: [n] int64, on the device where the noise is wanted. G = -log(E) with E = -log(1 - u)
    exponential, u uniform in (0, 1) from `hash_32`. The token that wins has a small E, and floats are
    densest near zero: hence 1 - u, not u.
    """
    # TODO 1.6: your code here (the reference: 5 lines).
    raise NotImplementedError(
        "sampler task 1.6: not implemented yet; see chapter Sampling"
    )


# ANCHOR_END: gumbel_noise
