"""Another design: the first of all lanes by argmin, and a lead by arrivals instead of products.

The reference multiplies crosswise, and takes the smallest token of those that arrive first.
"""

import triton
import triton.language as tl

from .noise import race_time, token_bits

LOWEST = tl.constexpr(-3.4028234663852886e38)
"""The least finite float32: a maximum to begin with, from which -inf can be subtracted."""
NO_TOKEN = tl.constexpr(2**31 - 1)
LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def exponent_scale(temperature):
    """What turns differences of logits into exponents of 2: log2(e) / temperature, but finite however
    small the temperature is; 1 for a greedy row."""
    scale = LOG2_E / tl.where(temperature > 0, temperature, LOG2_E)
    return tl.minimum(scale, -LOWEST)


@triton.jit
def absorb(values, maxima, sums, lead_weights, scale):
    """Each lane's online softmax: one logit more. Returns (weights, maxima, sums, lead_weights).

    sums: of 2 ** ((logit - maximum) * scale) over the lane's logits so far; lead_weights: that of its
    leader in the race; both relative to the lane's maximum, before this logit and after. weights: of
    this logit. -inf has weight 0 and changes nothing; maxima start at LOWEST.
    """
    new = tl.maximum(maxima, values)
    decay = tl.exp2((maxima - new) * scale)
    weights = tl.exp2((values - new) * scale)
    return weights, new, sums * decay + weights, lead_weights * decay


@triton.jit
def take_lead(weights, tokens, key, lead_weights, lead_times, lead_tokens):
    """Each lane's race: its leader so far, against the lane's token of this tile.

    A token arrives at E / weight, E from `race_time`; weights relative to the same maximum, 0 for those
    that may not win. The earlier one leads, of equals the one that led before. A lane without a leader
    has weight 0, time 1 and NO_TOKEN. Returns the new (lead_weights, lead_times, lead_tokens).
    """
    times = race_time(token_bits(tokens, key))
    # A lane without a leader, and a token that may not win, arrive at infinity.
    old = tl.where(
        lead_weights > 0, lead_times / tl.where(lead_weights > 0, lead_weights, 1.0), float("inf")
    )
    new = tl.where(weights > 0, times / tl.where(weights > 0, weights, 1.0), float("inf"))
    stays = (old <= new) | (weights <= 0)
    return (
        tl.where(stays, lead_weights, weights),
        tl.where(stays, lead_times, times),
        tl.where(stays, lead_tokens, tokens),
    )


@triton.jit
def finish_race(lead_weights, lead_times, lead_tokens):
    """(arrival, token) of the first of all lanes; of those that arrive together the first token.

    (inf, NO_TOKEN) if no lane has a leader.
    """
    lanes: tl.constexpr = lead_weights.numel
    weights = tl.reshape(lead_weights, [lanes])
    times, tokens = tl.reshape(lead_times, [lanes]), tl.reshape(lead_tokens, [lanes])
    arrivals = tl.where(weights > 0, times / tl.where(weights > 0, weights, 1.0), float("inf"))
    first = tl.min(arrivals)
    rank = tl.where((arrivals == first) & (weights > 0), tokens, NO_TOKEN)
    place = tl.argmin(rank, 0)
    return first, tl.sum(tl.where(tl.arange(0, lanes) == place, rank, 0))
