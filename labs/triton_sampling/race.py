# Lab 12, your part: task 12.2. The rest is given.
"""What the passes over the logits share: temperature, and the race in the lanes of a tile."""

import triton
import triton.language as tl

from .noise import race_time, token_bits

LOWEST = tl.constexpr(-3.4028234663852886e38)
"""The least finite float32: a maximum to begin with, from which -inf can be subtracted."""
NO_TOKEN = tl.constexpr(2**31 - 1)
LOG2_E = tl.constexpr(1.4426950408889634)


# ANCHOR: exponent_scale
@triton.jit
def exponent_scale(temperature):
    """What turns differences of logits into exponents of 2: log2(e) / temperature, but finite however
    small the temperature is; 1 for a greedy row."""
    scale = LOG2_E / tl.where(temperature > 0, temperature, LOG2_E)
    return tl.minimum(scale, -LOWEST)


# ANCHOR_END: exponent_scale


# ANCHOR: absorb
@triton.jit
def absorb(values, maxima, sums, lead_weights, scale):
    """Each lane's online softmax: one logit more. Returns (weights, maxima, sums, lead_weights).

    sums: of 2 ** ((logit - maximum) * scale) over the lane's logits so far; lead_weights: that of its
    leader in the race; both relative to the lane's maximum, before this logit and after. weights: of
    this logit. -inf has weight 0 and changes nothing; maxima start at LOWEST.
    """
    # TODO 12.2: your code here (the reference: 6 lines).
    raise NotImplementedError(
        "triton_sampling task 12.2: not implemented yet; see chapter Sampling in Triton"
    )


# ANCHOR_END: absorb


# ANCHOR: take_lead
@triton.jit
def take_lead(weights, tokens, key, lead_weights, lead_times, lead_tokens):
    """Each lane's race: its leader so far, against the lane's token of this tile.

    A token arrives at E / weight, E from `race_time`; weights relative to the same maximum, 0 for those
    that may not win. The earlier one leads, of equals the one that led before. A lane without a leader
    has weight 0, time 1 and NO_TOKEN. Returns the new (lead_weights, lead_times, lead_tokens).
    """
    # TODO 12.2: your code here (the reference: 7 lines).
    raise NotImplementedError(
        "triton_sampling task 12.2: not implemented yet; see chapter Sampling in Triton"
    )


# ANCHOR_END: take_lead


# ANCHOR: finish_race
@triton.jit
def finish_race(lead_weights, lead_times, lead_tokens):
    """(arrival, token) of the first of all lanes; of those that arrive together the first token.

    (inf, NO_TOKEN) if no lane has a leader.
    """
    # TODO 12.2: your code here (the reference: 5 lines).
    raise NotImplementedError(
        "triton_sampling task 12.2: not implemented yet; see chapter Sampling in Triton"
    )


# ANCHOR_END: finish_race
