"""Sampling from logits that are split over ranks, without gathering them, in Triton.

The logits of 256 rows and 128,256 tokens are 131 MB. Gathering them sends and copies all of that in
every step, for one token a row. It is not needed: a token's noise depends on seed, step and token alone
(lab 1), and the token with the largest logit / temperature + noise is the sample. Each rank finds the
best of its own tokens and sends its score, eight bytes a row. The best score gives the sample.

The tokens are those that lab 12 samples for rows without filters, except where two tokens are equally
good up to float32's rounding. A learner's lab 12 is not replaced by this: it gets all logits.
"""

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

from yaie.core.batch import SamplingBatch

BLOCK = 512
PROGRAMS = 1024
"""About how many programs a launch has. Each takes one split of a row."""
LEAST_TEMPERATURE = tl.constexpr(1e-30)
"""Lower temperatures are raised to this one. Otherwise a finite logit could give an infinite score."""
NO_TOKEN = tl.constexpr(2**31 - 1)
FAILED = 2**63 - 1
"""The score of a row with a logit that is NaN or +inf: above every other."""
NOTHING = -0x7F800001
"""The upper half of the score of a token whose logit is -inf."""

if triton.knobs.runtime.interpret:

    @triton.jit
    def fast_log(x):
        return tl.log(x)

else:
    from triton.language.extra.cuda import libdevice

    @triton.jit
    def fast_log(x):
        return libdevice.fast_logf(x)


@triton.jit
def scrambled(x):
    """Each uint32 hashed (lowbias32 of C. Wellons' hash prospector, 2018)."""
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def noise_of(tokens, seed, step):
    """The Gumbel noise of lab 1, float32: -log(-log(1 - u)), where u is small by a series."""
    mixed = scrambled(seed.to(tl.uint32) ^ scrambled((seed >> 32).to(tl.uint32)))
    key = scrambled(step.to(tl.uint32) ^ mixed ^ 0x9E3779B9)
    uniform = (scrambled(scrambled(tokens.to(tl.uint32)) ^ key) + 0.5) * 2.0**-32
    series = 1 / 3 + uniform * (1 / 4 + uniform * (1 / 5))
    series = uniform * (1.0 + uniform * (0.5 + uniform * series))
    logarithm = -fast_log(1.0 - tl.minimum(uniform, 1 - 2.0**-24))
    return -fast_log(tl.where(uniform < 1 / 16, series, logarithm))


@triton.jit
def best_kernel(
    logits, row_stride, temperatures, seeds, steps, scores, held, first, a_split,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Program (row, split): scores[row, split] is the best score among `a_split` of the `held` logits.

    A score is an int64. Its upper half is logit / temperature + noise (in a greedy row, the logit): the
    bits of the float32, mapped to an int32 that sorts the same way. Its lower half is 2**31 - 1 - token.
    Among equal values the lowest token therefore has the largest score. first: the token of column 0.
    """
    row = tl.program_id(0).to(tl.int64)
    logits += row * row_stride
    temperature = tl.load(temperatures + row)
    seed, step = tl.load(seeds + row), tl.load(steps + row)
    is_drawn = temperature > 0
    divisor = tl.where(is_drawn, tl.maximum(temperature, LEAST_TEMPERATURE), 1.0)
    best = tl.full([BLOCK], float("-inf"), tl.float32)
    leads = tl.full([BLOCK], NO_TOKEN, tl.int32)
    failed = tl.zeros([BLOCK], tl.int32)
    begin = tl.program_id(1) * a_split
    end = tl.minimum(begin + a_split, held)
    for start in tl.range(begin, end, BLOCK, num_stages=3):
        places = start + tl.arange(0, BLOCK)
        values = tl.load(logits + places, mask=places < end, other=float("-inf"))
        failed |= tl.where(values < float("inf"), 0, 1)
        values /= divisor
        if is_drawn:
            values += noise_of(first + places, seed, step)
        is_better = values > best
        best = tl.where(is_better, values, best)
        leads = tl.where(is_better, first + places, leads)
    top = tl.max(best)
    token = tl.min(tl.where(best == top, leads, NO_TOKEN))
    bits = tl.where(top == 0, 0.0, top).to(tl.int32, bitcast=True)  # -0.0 is as good as 0.0
    upper = tl.where(bits >= 0, bits, bits ^ 0x7FFFFFFF).to(tl.int64)
    score = (upper << 32) | (token ^ 0x7FFFFFFF).to(tl.int64)
    score = tl.where(tl.max(failed) > 0, 0x7FFFFFFFFFFFFFFF, score)
    tl.store(scores + row * tl.num_programs(1) + tl.program_id(1), score)


def best_scores(logits: Tensor, batch: SamplingBatch, first: int) -> Tensor:
    """The score of each row's best token, [n] int64; see `best_kernel`. logits: [n, held] float32, whose
    rows may be strided, of the tokens from `first` on. batch: of rows without filters and penalties."""
    n, held = logits.shape
    blocks = triton.cdiv(held, BLOCK)
    splits = max(1, min(blocks, triton.cdiv(PROGRAMS, max(n, 1))))
    a_split = triton.cdiv(blocks, splits) * BLOCK
    splits = triton.cdiv(held, a_split)
    scores = torch.empty((n, splits), dtype=torch.int64, device=logits.device)
    if n:
        best_kernel[(n, splits)](
            logits, logits.stride(0), batch.temperature, batch.seeds, batch.steps, scores, held,
            first, a_split, BLOCK=BLOCK, num_warps=4,
        )  # fmt: skip
    return scores.amax(1)


def tokens_of(scores: Tensor) -> Tensor:
    """[n] int64: the tokens with the best of scores [ranks, n]; -1 for a row that holds NaN or +inf, or
    nothing but -inf."""
    best = scores.amax(0)
    drawn = (2**31 - 1) - (best & 0xFFFFFFFF)
    return drawn.masked_fill((best == FAILED) | (best >> 32 == NOTHING), -1)


class SplitSampler:
    """See `yaie.core.contracts.Sampler`; of one rank's logits, and for rows without filters and
    penalties. All ranks call it together, and all get the same tokens."""

    def __init__(self, first: int, gathered: Callable[[Tensor], Tensor]) -> None:
        """See `Backend.make_split_sampler`."""
        self._first = first
        self._gathered = gathered

    def sample(self, logits: Tensor, batch: SamplingBatch) -> Tensor:
        return tokens_of(self._gathered(best_scores(logits, batch, self._first)))
