"""As many splits as there is room for, found by trying; and parts leave natural logarithms."""

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
    tiles = -(-max_keys // tile)
    splits = 1
    while splits < min(tiles, MAX_SPLITS) and (splits + 1) * n * kv_heads <= places:
        splits += 1
    return splits


@triton.jit
def part_of(start, end, split, splits, TILE: tl.constexpr):
    """The keys (first, end) that program `split` of `splits` takes of start..end: whole tiles.

    split: one number, or a tensor of them; then so are the results. Every sequence is divided by its own
    length. The last parts of a short one are empty: first >= end.
    """
    size = tl.cdiv(tl.cdiv(end - start, TILE), splits) * TILE
    first = start + split * size
    return first, tl.minimum(first + size, end)


@triton.jit
def store_lse(lses, rows, real, top, total):
    """For each real row the natural logarithm of its softmax's denominator: all that its part leaves
    to be known when parts are combined."""
    tl.store(lses + rows, top + tl.log(total), mask=real)
