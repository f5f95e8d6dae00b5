"""Another right noise: Gumbel noise, with log(1 - u) repaired as Goldberg (1991, theorem 4) says."""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def scramble(x):
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def noise_of(tokens, seed, step):
    """Standard Gumbel noise of the tokens of one row."""
    high = scramble((seed >> 32).to(tl.uint32))
    key = scramble(step.to(tl.uint32) ^ scramble(seed.to(tl.uint32) ^ high) ^ 0x9E3779B9)
    bits = scramble(scramble(tokens.to(tl.uint32)) ^ key)
    uniform = tl.minimum((bits.to(tl.float32) + 0.5) * 2.0**-32, 1 - 2.0**-24)
    rest = 1.0 - uniform
    lost = 1.0 - rest
    repaired = -tl.log(rest) * (uniform / tl.where(lost > 0, lost, 1.0))
    return -tl.log(tl.where(lost > 0, repaired, uniform))


@triton.jit
def noise_kernel(seeds, steps, out, vocab, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    seed, step = tl.load(seeds + row), tl.load(steps + row)
    for start in range(0, vocab, BLOCK):
        tokens = start + tl.arange(0, BLOCK)
        tl.store(out + row * vocab + tokens, noise_of(tokens, seed, step), mask=tokens < vocab)


def gumbel_noise(seeds: Tensor, steps: Tensor, vocab: int) -> Tensor:
    out = torch.empty((len(seeds), vocab), dtype=torch.float32, device=seeds.device)
    noise_kernel[(len(seeds),)](seeds, steps, out, vocab, BLOCK=512)
    return out
