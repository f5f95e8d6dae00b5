"""Another design: every tile has a winner, and the row's is the earliest of these so far.

The reference keeps a leader in each lane, and finishes the race behind the last tile.
"""

import triton
import triton.language as tl

from .chunks import list_chunks, load_chunks
from .noise import row_key
from .race import NO_TOKEN, exponent_scale, finish_race, take_lead


@triton.jit
def least_exponent(min_p):
    """min_p as an exponent of 2: p_i >= min_p * p_max is said of (logit - maximum) * scale by
    being at least this. -inf if min_p is 0."""
    if min_p > 0:
        least = tl.log2(min_p)
    else:
        least = tl.full([], float("-inf"), tl.float32)
    return least


@triton.jit
def race_above(
    low,
    is_race,
    logits,
    chunk_maxima,
    chunk_list,
    maximum,
    scale,
    least,
    key,
    first_token,
    vocab,
    num_chunks,
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """One pass over those of num_chunks chunks from first_token on whose maximum is above `low`.

    Returns (mass, arrival, token): the sum of exp((logit - maximum) / temperature) over the tokens with
    a logit above low; and the first to arrive of those whose exponent is at least `least`, if is_race.
    (inf, NO_TOKEN) if there is none. scale: `exponent_scale`. logits: the row's. chunk_maxima,
    chunk_list: from the first of the chunks on.
    """
    count = list_chunks(chunk_maxima, low, num_chunks, chunk_list, BLOCK)
    mass = tl.full([], 0.0, tl.float32)
    arrival = tl.full([], float("inf"), tl.float32)
    winner = tl.full([], NO_TOKEN, tl.int32)
    ones = tl.full([CHUNKS, CHUNK], 1.0, tl.float32)
    for first in tl.range(0, count, CHUNKS, num_stages=STAGES):
        values, tokens = load_chunks(
            logits, chunk_list, first, count, first_token, vocab, CHUNK, CHUNKS
        )
        exponents = (values - maximum) * scale
        weights = tl.where(values > low, tl.exp2(exponents), 0.0)
        mass += tl.sum(tl.sum(weights, 1), 0)
        if is_race:
            weights = tl.where(exponents < least, 0.0, weights)
            lead = take_lead(
                weights, tokens, key, ones * 0.0, ones, (ones * 0).to(tl.int32) + NO_TOKEN
            )
            here, token = finish_race(lead[0], lead[1], lead[2])
            winner = tl.where(here < arrival, token, winner)
            arrival = tl.minimum(here, arrival)
    return mass, arrival, winner


@triton.jit
def round_kernel(
    logits,
    row_stride,
    temperatures,
    min_ps,
    seeds,
    steps,
    maxima,
    lows,
    candidates,
    is_open,
    chunk_maxima,
    chunk_lists,
    split_masses,
    split_arrivals,
    split_tokens,
    vocab,
    num_chunks,
    chunks_per_split,
    RACE: tl.constexpr,
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """One round of all rows that are open, cut into splits. Program (row, split).

    The bound is the candidate's logit, or low where there is no candidate. RACE: also look for the next
    candidate; nobody knows yet whether it will be needed, so the first round of most rows does not.
    """
    row = tl.program_id(0).to(tl.int64)
    if tl.load(is_open + row) > 0:
        first_chunk = tl.program_id(1) * chunks_per_split
        logits += row * row_stride
        at = row * num_chunks + first_chunk
        scale = exponent_scale(tl.load(temperatures + row))
        key = row_key(tl.load(seeds + row), tl.load(steps + row))
        candidate = tl.load(candidates + row)
        is_known = candidate != NO_TOKEN
        low = tl.load(lows + row)
        if is_known:
            low = tl.load(logits + candidate)
        mass, arrival, token = race_above(
            low, RACE | (not is_known), logits, chunk_maxima + at, chunk_lists + at,
            tl.load(maxima + row), scale, least_exponent(tl.load(min_ps + row)), key,
            first_chunk * CHUNK, vocab, tl.minimum(chunks_per_split, num_chunks - first_chunk),
            CHUNK, CHUNKS, BLOCK, STAGES,
        )  # fmt: skip
        place = row * tl.num_programs(1) + tl.program_id(1)
        tl.store(split_masses + place, mass)
        tl.store(split_arrivals + place, arrival)
        tl.store(split_tokens + place, token)
