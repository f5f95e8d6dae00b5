# Lab 11, your part (edition 2): task 11.3. The rest is given.
"""How often the keys of each sequence are divided among programs (Flash-Decoding, Dao et al. 2023).

A decode has one query a sequence: sequences times key heads may be far fewer programs than the GPU has
places for, and each would walk through all its keys alone. Split, several programs take a part of the
keys each; `combine_kernel` in `decode.py` joins what they found.
"""

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


# ANCHOR: choose_splits
def choose_splits(n: int, kv_heads: int, max_keys: int, tile: int, places: int) -> int:
    """Into how many parts the keys of each of n sequences are divided, 1 to MAX_SPLITS.

    max_keys: a bound on the keys of a sequence. tile: keys that a program takes at once, so that a part
    has at least this many. places: SM slots, programs that run on the device at the same time.
    """
    # TODO 11.3: your code here (the reference: 2 lines).
    raise NotImplementedError(
        "triton_paged_attention task 11.3: not implemented yet; see chapter Paged attention in Triton"
    )


# ANCHOR_END: choose_splits


# ANCHOR: part_of
@triton.jit
def part_of(start, end, split, splits, TILE: tl.constexpr):
    """The keys (first, end) that program `split` of `splits` takes of start..end: whole tiles.

    split: one number, or a tensor of them; then so are the results. Every sequence is divided by its own
    length. The last parts of a short one are empty: first >= end.
    """
    # TODO 11.3: your code here (the reference: 3 lines).
    raise NotImplementedError(
        "triton_paged_attention task 11.3: not implemented yet; see chapter Paged attention in Triton"
    )


# ANCHOR_END: part_of


# ANCHOR: store_lse
@triton.jit
def store_lse(lses, rows, real, top, total):
    """For each real row the base-2 logarithm of its softmax's denominator: all that its part leaves
    to be known when parts are combined."""
    # TODO 11.3: your code here (the reference: 1 line).
    raise NotImplementedError(
        "triton_paged_attention task 11.3: not implemented yet; see chapter Paged attention in Triton"
    )


# ANCHOR_END: store_lse
