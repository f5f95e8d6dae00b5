"""The first pass over the logits: maximum, sum of exponentials and the winner of the race at once.

A row is cut into chunks of CHUNK tokens, whose maxima later passes use to skip what cannot matter, and
into splits of several chunks, one program each, so that few rows also fill the GPU.
"""

from dataclasses import dataclass
from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from yaie.core.batch import SamplingBatch

from .noise import row_key
from .race import LOWEST, NO_TOKEN, absorb, exponent_scale, finish_race, take_lead

CHUNK = 128


# ANCHOR: scan_kernel
@triton.jit
def scan_kernel(
    logits,
    row_stride,
    temperatures,
    top_ks,
    seeds,
    steps,
    chunk_maxima,
    split_maxima,
    split_sums,
    split_arrivals,
    split_tokens,
    vocab,
    num_chunks,
    chunks_per_split,
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Program (row, split). See `Scan` for what it writes. Tiles are [CHUNKS, CHUNK] tokens.

    Every lane has a maximum, a sum and a leader of its own, so that no thread waits for another until
    the end: an online softmax (Milakov and Gimelshein 2018) and a race in each.

    Rows with a top-k have no race yet: who may win is not known.
    """
    row = tl.program_id(0).to(tl.int64)
    split = tl.program_id(1)
    logits += row * row_stride
    temperature = tl.load(temperatures + row)
    scale = exponent_scale(temperature)
    k = tl.load(top_ks + row)
    key = row_key(tl.load(seeds + row), tl.load(steps + row))
    maxima = tl.full([CHUNKS, CHUNK], LOWEST, tl.float32)
    sums = tl.zeros([CHUNKS, CHUNK], tl.float32)
    lead_weights = tl.zeros([CHUNKS, CHUNK], tl.float32)
    lead_times = tl.full([CHUNKS, CHUNK], 1.0, tl.float32)
    lead_tokens = tl.full([CHUNKS, CHUNK], NO_TOKEN, tl.int32)
    begin = split * chunks_per_split
    end = tl.minimum(begin + chunks_per_split, num_chunks)
    for start in tl.range(begin, end, CHUNKS, num_stages=STAGES):
        chunks = start + tl.arange(0, CHUNKS)
        tokens = chunks[:, None] * CHUNK + tl.arange(0, CHUNK)[None, :]
        values = tl.load(logits + tokens, mask=tokens < vocab, other=float("-inf"))
        highest = tl.max(values, axis=1)
        tl.store(chunk_maxima + row * num_chunks + chunks, highest, mask=chunks < num_chunks)
        is_new = values > maxima
        weights, maxima, sums, lead_weights = absorb(values, maxima, sums, lead_weights, scale)
        if temperature == 0:
            is_new = is_new | ((lead_tokens == NO_TOKEN) & (values == maxima))
            lead_weights = tl.where(is_new, 1.0, lead_weights)
            lead_tokens = tl.where(is_new, tokens, lead_tokens)
        elif (k <= 0) | (k >= vocab):
            lead_weights, lead_times, lead_tokens = take_lead(
                weights, tokens, key, lead_weights, lead_times, lead_tokens
            )
    maximum = tl.max(maxima)
    lowered = tl.exp2((maxima - maximum) * scale)
    # Of a greedy row not by the exponential: it cannot tell a logit from one larger by a hair.
    lowered_leads = tl.where(temperature == 0, (maxima == maximum).to(tl.float32), lowered)
    arrival, token = finish_race(lead_weights * lowered_leads, lead_times, lead_tokens)
    place = row * tl.num_programs(1) + split
    tl.store(split_maxima + place, maximum)
    tl.store(split_sums + place, tl.sum(sums * lowered))
    tl.store(split_arrivals + place, arrival)
    tl.store(split_tokens + place, token)


# ANCHOR_END: scan_kernel


# ANCHOR: scan
@dataclass(frozen=True, slots=True)
class Scan:
    """What the first pass found out about n rows.

    chunk_maxima: [n, chunks] float32, the largest logit of each chunk of CHUNK tokens.
    maxima: [n, splits] float32, the largest logit of each split; at least LOWEST.
    sums: [n, splits] float32, its sum of exp((logit - maximum) / temperature); NaN if the split has a
        NaN, and no use where the maximum is +inf; 0 if all of it is -inf.
    arrivals, tokens: [n, splits] float32 and int32, when the first of its tokens arrived, relative to
        the split's maximum, and which; inf and NO_TOKEN in rows that draw with a top-k. In a greedy row
        the first of the largest.
    """

    chunk_maxima: Tensor
    maxima: Tensor
    sums: Tensor
    arrivals: Tensor
    tokens: Tensor


@dataclass(frozen=True, slots=True)
class ScanTile:
    """Splits of a row, chunks in each and in each tile of it, and the kernels' warps and stages."""

    splits: int
    chunks_per_split: int
    chunks: int
    warps: int
    stages: int


@lru_cache(maxsize=256)
def scan_tile(n: int, vocab: int, num_sms: int) -> ScanTile:
    """About eight programs for each multiprocessor, each of whole tiles. Tuned on an H200.

    num_sms is 1 on a CPU, where the interpreter takes as long for a large tile as for a small one.
    """
    num_chunks = triton.cdiv(vocab, CHUNK)
    chunks = min(4 if num_sms > 1 else 8, triton.next_power_of_2(num_chunks))
    tiles = triton.cdiv(num_chunks, chunks)
    splits = max(1, min(tiles, triton.cdiv(8 * num_sms, n)))
    per_split = triton.cdiv(tiles, splits) * chunks
    return ScanTile(triton.cdiv(num_chunks, per_split), per_split, chunks, 4, 3)


def num_multiprocessors(device: torch.device) -> int:
    """Of the GPU; 1 on a CPU, where programs run one after the other."""
    if device.type != "cuda":
        return 1
    count: int = torch.cuda.get_device_properties(device).multi_processor_count
    return count


def scan_rows(logits: Tensor, batch: SamplingBatch) -> Scan:
    """The first pass over logits [n, vocab] float32, whose rows may be strided."""
    n, vocab = logits.shape
    tile = scan_tile(n, vocab, num_multiprocessors(logits.device))
    num_chunks = triton.cdiv(vocab, CHUNK)

    def empty(columns: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty((n, columns), dtype=dtype, device=logits.device)

    splits = tile.splits
    scan = Scan(
        empty(num_chunks), empty(splits), empty(splits), empty(splits), empty(splits, torch.int32)
    )
    scan_kernel[(n, splits)](
        logits, logits.stride(0), batch.temperature, batch.top_k, batch.seeds, batch.steps,
        scan.chunk_maxima, scan.maxima, scan.sums, scan.arrivals, scan.tokens,
        vocab, num_chunks, tile.chunks_per_split,
        CHUNK=CHUNK, CHUNKS=tile.chunks, STAGES=tile.stages, num_warps=tile.warps,
    )  # fmt: skip
    return scan


# ANCHOR_END: scan
