"""Another right noise: a coin says which half of the exponential distribution a time is from.

Bits come from a multiply-and-xorshift hash of 63 bits, of (seed, step) once a row and of each token.
With both halves measured from their own end, both tails of the noise are fine.
"""

import torch
from torch import Tensor

_PRIME = 0x2545F4914F6CDD1D
_OTHER = 0x369DEA0F31A53F85
_SIGN = 0x5851F42D4C957F2D
_WORD = (1 << 63) - 1


def _mix(x: Tensor) -> Tensor:
    """Scramble 63 bits of each int64; products wrap around."""
    for _ in range(3):
        x = ((x ^ (x & _WORD) >> 29) * _PRIME) & _WORD
        x = ((x ^ x >> 31) * _OTHER) & _WORD
    return x ^ x >> 32


def gumbel_noise(seeds: Tensor, steps: Tensor, vocab: int) -> Tensor:
    """Standard Gumbel noise [n, vocab] float32, a function of (seed, step, token) only."""
    # The sign bit is folded in first: _mix looks at the others alone.
    keys = _mix(seeds ^ (seeds < 0).long() * _SIGN ^ _PRIME)
    rows = _mix(keys + _mix(steps ^ _OTHER))
    tokens = _mix(_mix(torch.arange(1, vocab + 1, device=seeds.device)))
    bits = _mix(rows.unsqueeze(1) ^ tokens.unsqueeze(0))
    # u lies in (0, 1/2): one bit says whether E is -log(u), above log 2, or -log(1 - u), below.
    half = ((bits >> 10).double() + 0.5) * 2.0**-54
    exponential = torch.where(bits & 1 == 0, -half.log(), -torch.log1p(-half))
    return exponential.log().neg().to(torch.float32)
