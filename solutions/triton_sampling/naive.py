# ORACLE
"""The same draws as one writes them first: one program a row, one pass over the row for each question.

Every token's noise is computed in every pass, nothing is skipped, and the k largest are found one after
the other. The oracle of the tests, beside lab 1, and what the tuned kernels are measured against.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from yaie.core.batch import SamplingBatch

from .noise import race_time, row_key, token_bits
from .penalties import apply_penalties

BLOCK = 1024


# ANCHOR: largest_below
@triton.jit
def largest_below(logits, high, vocab, BLOCK: tl.constexpr):
    """(the largest logit of a row below `high`, how many tokens have it)."""
    largest, number = float("-inf"), 0
    for start in range(0, vocab, BLOCK):
        tokens = start + tl.arange(0, BLOCK)
        values = tl.load(logits + tokens, mask=tokens < vocab, other=float("-inf"))
        values = tl.where(values < high, values, float("-inf"))
        here = tl.max(values)
        count = tl.sum((values == here).to(tl.int32))
        number = tl.where(here > largest, count, tl.where(here == largest, number + count, number))
        largest = tl.maximum(largest, here)
    return largest, number


# ANCHOR_END: largest_below


# ANCHOR: round
@triton.jit
def one_round(logits, low, floor, maximum, heat, key, vocab, BLOCK: tl.constexpr):
    """(mass of the tokens above low, winner of those that are also at least floor, its logit)."""
    mass, best, token, logit = 0.0, float("-inf"), -1, float("inf")
    for start in range(0, vocab, BLOCK):
        tokens = start + tl.arange(0, BLOCK)
        values = tl.load(logits + tokens, mask=tokens < vocab, other=float("-inf"))
        exponents = (values - maximum) / heat
        is_above = values > low
        mass += tl.sum(tl.where(is_above, tl.exp(exponents), 0.0))
        scores = exponents - tl.log(race_time(token_bits(tokens, key)))
        scores = tl.where(is_above & (values >= floor), scores, float("-inf"))
        here = tl.max(scores)
        first = tl.min(tl.where(scores == here, tokens, vocab))
        is_better = here > best
        token = tl.where(is_better, first, token)
        logit = tl.where(is_better, tl.sum(tl.where(tokens == first, values, 0.0)), logit)
        best = tl.maximum(best, here)
    return mass, token, logit


# ANCHOR_END: round


# ANCHOR: kernel
@triton.jit
def draw_kernel(
    logits,
    row_stride,
    temperatures,
    top_ks,
    top_ps,
    min_ps,
    seeds,
    steps,
    out,
    vocab,
    BLOCK: tl.constexpr,
):
    """One draw; the row is read once for its maximum, once a round, and k times for a top-k of k."""
    row = tl.program_id(0)
    logits += row.to(tl.int64) * row_stride
    maximum, number = largest_below(logits, float("inf"), vocab, BLOCK)
    heat = tl.load(temperatures + row)
    key = row_key(tl.load(seeds + row), tl.load(steps + row))
    k, low = tl.load(top_ks + row), float("-inf")
    if (k > 0) & (k < vocab):
        seen, lowest = number, maximum
        while (seen < k) & (lowest > float("-inf")):
            lowest, number = largest_below(logits, lowest, vocab, BLOCK)
            seen += number
        low, _ = largest_below(logits, lowest, vocab, BLOCK)
    p, min_p = tl.load(top_ps + row), tl.load(min_ps + row)
    divisor = tl.where(heat > 0, heat, 1.0)
    # log(0) is -inf: every logit is at least that.
    floor = tl.where(min_p > 0, maximum + tl.log(tl.maximum(min_p, 1e-38)) * divisor, float("-inf"))
    total, token, logit = one_round(logits, low, floor, maximum, divisor, key, vocab, BLOCK)
    if heat > 0:
        is_open = p < 1
        while is_open:
            mass, better, higher = one_round(
                logits, logit, floor, maximum, divisor, key, vocab, BLOCK
            )
            is_open = (mass >= p * total) & (better >= 0)
            token = tl.where(is_open, better, token)
            logit = tl.where(is_open, higher, logit)
    else:
        for start in range(0, vocab, BLOCK):
            tokens = vocab - 1 - start - tl.arange(0, BLOCK)
            values = tl.load(logits + tokens, mask=tokens >= 0, other=float("-inf"))
            first = tl.min(tl.where(values == maximum, tokens, vocab))
            token = tl.where(first < vocab, first, token)
    tl.store(out + row, token.to(tl.int64))


# ANCHOR_END: kernel


class NaiveSampler:
    """`Sampler` of `yaie.core.contracts`, from the kernels above."""

    def sample(self, logits: Tensor, batch: SamplingBatch) -> Tensor:
        """Draw from `logits` [n, vocab] float32; returns [n] int64, -1 for a row that is not finite."""
        if not len(logits):
            return torch.empty(0, dtype=torch.int64, device=logits.device)
        valid = logits.amax(dim=1).isfinite()
        if batch.penalties is not None:
            logits = apply_penalties(logits, batch.penalties)
        logits = torch.where(valid[:, None], logits, 0.0)
        out = torch.empty(len(logits), dtype=torch.int64, device=logits.device)
        draw_kernel[(len(logits),)](
            logits, logits.stride(0), batch.temperature, batch.top_k, batch.top_p, batch.min_p,
            batch.seeds, batch.steps, out, logits.shape[1], BLOCK=BLOCK,
        )  # fmt: skip
        return torch.where(valid, out, -1)
