"""Another design: `judge` chooses by numbers and has no branch.

The reference asks whether there is a candidate, and then whether it is kept.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from yaie.core.batch import SamplingBatch

from .noise import row_key
from .race import NO_TOKEN, exponent_scale
from .rounds import least_exponent, race_above, round_kernel
from .scan import CHUNK, Scan, num_multiprocessors, scan_tile


@triton.jit
def join_scan(maxima, sums, arrivals, tokens, splits, temperature, BLOCK: tl.constexpr):
    """(maximum, total, token) of a row from those of its splits. BLOCK: at least `splits`."""
    place = tl.arange(0, BLOCK)
    mask = place < splits
    each = tl.load(maxima + place, mask=mask, other=float("-inf"))
    maximum = tl.max(each)
    lowered = tl.where(mask, tl.exp2((each - maximum) * exponent_scale(temperature)), 0.0)
    total = tl.sum(tl.load(sums + place, mask=mask, other=0.0) * lowered)
    # A greedy row: of the splits that have the maximum.
    lowered = tl.where(temperature == 0, (each == maximum).to(tl.float32), lowered)
    arrival = tl.load(arrivals + place, mask=mask, other=float("inf"))
    arrival = tl.where(lowered > 0, arrival / tl.where(lowered > 0, lowered, 1.0), float("inf"))
    token = tl.load(tokens + place, mask=mask, other=NO_TOKEN)
    is_first = (arrival == tl.min(arrival)) & (arrival < float("inf"))
    return maximum, total, tl.min(tl.where(is_first, token, NO_TOKEN))


@triton.jit
def join_round(masses, arrivals, tokens, splits, BLOCK: tl.constexpr):
    """(mass, token) of a row from those of its splits in a round."""
    place = tl.arange(0, BLOCK)
    mask = place < splits
    arrival = tl.load(arrivals + place, mask=mask, other=float("inf"))
    token = tl.load(tokens + place, mask=mask, other=NO_TOKEN)
    is_first = (arrival == tl.min(arrival)) & (arrival < float("inf"))
    token = tl.min(tl.where(is_first, token, NO_TOKEN))
    return tl.sum(tl.load(masses + place, mask=mask, other=0.0)), token


@triton.jit
def judge(candidate, low, total, p, mass, following, logits):
    """What a round means for a row: (candidate, low, total, is_open).

    mass: of the tokens above the candidate, or above low if there was none. following: the winner among
    them, or NO_TOKEN if nobody raced. The candidate is the draw if the row is not open any more.
    """
    is_first = candidate == NO_TOKEN
    total = tl.where(is_first & (total < 0), mass, total)
    rejected = (mass > 0) & (mass >= p * total) & (candidate != NO_TOKEN)
    # Without a candidate nothing is loaded.
    logit = tl.load(logits + candidate, mask=rejected, other=0.0)
    low = tl.where(rejected, logit, low)
    candidate = tl.where(rejected | is_first, following, candidate)
    return candidate, low, total, rejected | (is_first & (p < 1))


@triton.jit
def decide_kernel(
    logits,
    row_stride,
    temperatures,
    top_ps,
    min_ps,
    seeds,
    steps,
    bounds,
    maxima,
    lows,
    totals,
    candidates,
    is_open_rows,
    chunk_maxima,
    chunk_lists,
    split_maxima,
    split_masses,
    split_arrivals,
    split_tokens,
    out,
    vocab,
    num_chunks,
    splits,
    FIRST: tl.constexpr,
    LAST: tl.constexpr,
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
    BLOCK: tl.constexpr,
    SPLITS: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Join what the splits of each row found, and decide. One program a row.

    FIRST: the splits are those of the scan. LAST: go on alone until the row is decided, and write the
    draw to out [n] int64: -1 for a row that is not finite.
    """
    row = tl.program_id(0).to(tl.int64)
    logits += row * row_stride
    at = row * splits
    temperature = tl.load(temperatures + row)
    scale = exponent_scale(temperature)
    least = least_exponent(tl.load(min_ps + row))
    p = tl.load(top_ps + row)
    if FIRST:
        maximum, total, candidate = join_scan(split_maxima + at, split_masses + at,
            split_arrivals + at, split_tokens + at, splits, temperature, SPLITS)  # fmt: skip
        low = tl.load(bounds + row)
        is_valid = (total > 0) & (maximum < float("inf"))
        is_known = (candidate != NO_TOKEN) | (not is_valid)
        if is_known & is_valid:
            is_known = (tl.load(logits + candidate) - maximum) * scale >= least
        # What takes part in no round needs no candidate: greedy rows, and those that are not finite.
        is_drawn = is_valid & (temperature > 0)
        is_known = is_known | (not is_drawn)
        total = tl.where(low > float("-inf"), -1.0, total)
        is_open = is_drawn & ((p < 1) | (not is_known))
        candidate = tl.where(is_known, candidate, NO_TOKEN)
        candidate = tl.where(is_valid, candidate, -1)
    else:
        maximum = tl.load(maxima + row)
        candidate, low = tl.load(candidates + row), tl.load(lows + row)
        total, is_open = tl.load(totals + row), tl.load(is_open_rows + row) > 0
        if is_open:
            mass, following = join_round(split_masses + at, split_arrivals + at, split_tokens + at,
                                         splits, SPLITS)  # fmt: skip
            candidate, low, total, is_open = judge(
                candidate, low, total, p, mass, following, logits
            )
    if LAST:
        chunk_maxima += row * num_chunks
        chunk_lists += row * num_chunks
        key = row_key(tl.load(seeds + row), tl.load(steps + row))
        while is_open:
            above = low
            if candidate != NO_TOKEN:
                above = tl.load(logits + candidate)
            mass, _, following = race_above(above, True, logits, chunk_maxima, chunk_lists, maximum,
                scale, least, key, 0, vocab, num_chunks, CHUNK, CHUNKS, BLOCK, STAGES)  # fmt: skip
            candidate, low, total, is_open = judge(
                candidate, low, total, p, mass, following, logits
            )
        tl.store(out + row, candidate.to(tl.int64))
    else:
        tl.store(maxima + row, maximum)
        tl.store(lows + row, low)
        tl.store(totals + row, total)
        tl.store(candidates + row, candidate)
        tl.store(is_open_rows + row, is_open.to(tl.int32))


@dataclass(frozen=True, slots=True)
class DrawTile:
    """Rounds in which a row has several programs; chunks of a tile, warps and stages of those and of
    the programs that go on alone."""

    rounds: int
    chunks: int
    warps: int
    stages: int
    lone_chunks: int
    lone_warps: int


def draw_tile(n: int, vocab: int, num_sms: int, batch: SamplingBatch) -> DrawTile:
    """Each round leaves about 1 - p of the rows open; min-p needs one for those whose first candidate it
    drops. Few rows, or none with either: no such rounds, whose launches would cost more than they save.
    Tuned on an H200."""
    most = triton.next_power_of_2(triton.cdiv(vocab, CHUNK))
    rounds = 4 if batch.any_top_p else int(batch.any_min_p)
    if n < max(2, num_sms // 4):
        rounds = 0
    return DrawTile(rounds, min(4 if num_sms > 1 else 8, most), 4, 3, min(32, most), 16)


def draw_rows(logits: Tensor, batch: SamplingBatch, scan: Scan, bounds: Tensor) -> Tensor:
    """[n] int64, the draws from logits [n, vocab] whose first pass is `scan`.

    bounds: [n] float32, what a logit must exceed for top-k. Top-p's total is over those that do.
    """
    n, vocab = logits.shape
    num_chunks, splits = scan.chunk_maxima.shape[1], scan.maxima.shape[1]
    floats = torch.empty((3, n), dtype=torch.float32, device=logits.device)
    integers = torch.empty((2, n), dtype=torch.int32, device=logits.device)
    lists = torch.empty((n, num_chunks), dtype=torch.int32, device=logits.device)
    out = torch.empty(n, dtype=torch.int64, device=logits.device)
    num_sms = num_multiprocessors(logits.device)
    tile = draw_tile(n, vocab, num_sms, batch)
    maxima, lows, totals = floats
    candidates, is_open = integers
    per_split = scan_tile(n, vocab, num_sms).chunks_per_split
    found = scan.maxima, scan.sums, scan.arrivals, scan.tokens
    for step in range(tile.rounds + 1):
        decide_kernel[(n,)](
            logits, logits.stride(0), batch.temperature, batch.top_p, batch.min_p, batch.seeds,
            batch.steps, bounds, maxima, lows, totals, candidates, is_open, scan.chunk_maxima, lists,
            *found, out, vocab, num_chunks, splits, FIRST=step == 0, LAST=step == tile.rounds,
            CHUNK=CHUNK, CHUNKS=tile.lone_chunks, BLOCK=triton.next_power_of_2(num_chunks),
            SPLITS=triton.next_power_of_2(splits), STAGES=2,
            num_warps=tile.lone_warps if step == tile.rounds else 1,
        )  # fmt: skip
        if step < tile.rounds:
            round_kernel[(n, splits)](
                logits, logits.stride(0), batch.temperature, batch.min_p, batch.seeds, batch.steps,
                maxima, lows, candidates, is_open, scan.chunk_maxima, lists, *found[1:],
                vocab, num_chunks, per_split, RACE=step > 0, CHUNK=CHUNK, CHUNKS=tile.chunks,
                BLOCK=triton.next_power_of_2(per_split), STAGES=tile.stages, num_warps=tile.warps,
            )  # fmt: skip
    return out
