"""Another right noise: 64 bits of hash instead of 32, and float64 instead of care about rounding.

With 53 random bits in float64, u itself is fine enough close to 1, so -log(u) needs no detour by 1 - u.
The hash is the finaliser of SplitMix64 (Steele, Lea and Flood 2014), in int64 that wraps around.
"""

import torch
from torch import Tensor


def _signed(constant: int) -> int:
    """A 64-bit constant as the int64 of the same bits."""
    return constant - (1 << 64) if constant >> 63 else constant


_ONE, _TWO = _signed(0xBF58476D1CE4E5B9), _signed(0x94D049BB133111EB)
_STEP, _TOKEN = _signed(0x9E3779B97F4A7C15), _signed(0xD1B54A32D192ED03)


def _shifted(x: Tensor, bits: int) -> Tensor:
    """A logical shift to the right; `>>` would pull the sign along."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def mixed(x: Tensor) -> Tensor:
    """Scramble all 64 bits of each int64."""
    x = (x ^ _shifted(x, 30)) * _ONE
    x = (x ^ _shifted(x, 27)) * _TWO
    return x ^ _shifted(x, 31)


def gumbel_noise(seeds: Tensor, steps: Tensor, vocab: int) -> Tensor:
    """Standard Gumbel noise [n, vocab] float32, a function of (seed, step, token) only."""
    keys = mixed(mixed(seeds) + steps * _STEP)
    tokens = torch.arange(1, vocab + 1, device=seeds.device) * _TOKEN
    bits = _shifted(mixed(keys[:, None] + tokens[None, :]), 12)
    uniform = (bits.double() + 0.5) * 2.0**-52
    return -(-uniform.log()).log().float()
