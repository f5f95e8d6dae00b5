"""Another right noise: Threefry by its bits, some rows at a time into memory that is there.

Threefry-2x32 with 13 rounds (Salmon et al. 2011) takes the seed's two halves as its key, and the step
and the token as its counter; its two words give 52 bits for a float64. Additions and rotations only.
"""

import torch
from torch import Tensor

_MASK = 0xFFFFFFFF
_ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
_PARITY = 0x1BD11BDA


def _threefry(keys: tuple[Tensor, Tensor], counter: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Two words of 32 bits, in int64, for two keys and two counters that broadcast."""
    ks = (*keys, keys[0] ^ keys[1] ^ _PARITY)
    x, y = (counter[0] + ks[0]) & _MASK, (counter[1] + ks[1]) & _MASK
    for number in range(13):
        turn = _ROTATIONS[number % 8]
        x = (x + y) & _MASK
        y = ((y << turn | y >> (32 - turn)) & _MASK) ^ x
        if number % 4 == 3:
            block = number // 4 + 1
            x = (x + ks[block % 3]) & _MASK
            y = (y + ks[(block + 1) % 3] + block) & _MASK
    return x, y


def gumbel_noise(seeds: Tensor, steps: Tensor, vocab: int) -> Tensor:
    """Standard Gumbel noise [n, vocab] float32, a function of (seed, step, token) only."""
    out = torch.empty((len(seeds), vocab), dtype=torch.float32, device=seeds.device)
    tokens = torch.arange(vocab, device=seeds.device)
    at_once = max(1, 2**18 // max(1, vocab))
    for first in range(0, len(seeds), at_once):
        here = slice(first, first + at_once)
        seed, step = seeds[here, None], steps[here, None]
        high, low = _threefry((seed >> 32 & _MASK, seed & _MASK), (step & _MASK, tokens))
        uniform = ((high << 20 | low >> 12).double() + 0.5) * 2.0**-52
        out[here] = uniform.log().neg_().log_().neg_()
    return out
