"""Tiles are dealt out as evenly as they can be: parts differ by one tile at most, larger ones first."""

import functools

import torch
import triton
import triton.language as tl

MAX_SPLITS = 64
CPU_SMS = 132
"""An interpreter has no multiprocessors. It is given those of an H200, so that it splits alike."""


@functools.lru_cache
def num_sms(device: torch.device) -> int:
    """Streaming multiprocessors of the device."""
    if device.type != "cuda":
        return CPU_SMS
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def choose_splits(n: int, kv_heads: int, max_keys: int, tile: int, places: int) -> int:
    """Into how many parts the keys of each of n sequences are divided, 1 to MAX_SPLITS.

    max_keys: a bound on the keys of a sequence. tile: keys that a program takes at once, so that a part
    has at least this many. places: SM slots, programs that run on the device at the same time.
    """
    # As many as fill the places once: the programs are alike, and one more than fit would run alone.
    whole = max(1, places // (n * kv_heads))
    return min(whole, max(1, triton.cdiv(max_keys, tile)), MAX_SPLITS)


@triton.jit
def part_of(start, end, split, splits, TILE: tl.constexpr):
    """The keys (first, end) that program `split` of `splits` takes of start..end: whole tiles.

    split: one number, or a tensor of them; then so are the results. Every sequence is divided by its own
    length. The last parts of a short one are empty: first >= end.
    """
    tiles = tl.cdiv(end - start, TILE)
    least, more = tiles // splits, tiles % splits
    first = split * least + tl.minimum(split, more)
    last = (split + 1) * least + tl.minimum(split + 1, more)
    return start + first * TILE, tl.minimum(start + last * TILE, end)


@triton.jit
def store_lse(lses, rows, real, top, total):
    """For each real row the base-2 logarithm of its softmax's denominator: all that its part leaves
    to be known when parts are combined."""
    tl.store(lses + rows, top + tl.log2(total), mask=real)
