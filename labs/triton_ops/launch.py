"""How the kernels are cut into programs: small functions of the shapes, not a search at run time.

A search (`triton.autotune`) would stall an engine at the first request of each new size.
"""

from dataclasses import dataclass
from functools import lru_cache

import torch
import triton
from torch import Tensor

LONGEST_ROW = 16384
"""In numbers: 32 registers of each of 512 threads. A longer row is read twice instead."""

ELEMENTWISE_TILE = 1024


# ANCHOR: norm_tile
@dataclass(frozen=True, slots=True)
class NormTile:
    """BLOCK, ROWS and STAGES of a norm kernel, its warps, and how many programs there may be."""

    block: int
    rows: int
    stages: int
    warps: int
    programs: int


@lru_cache(maxsize=256)
def norm_tile(num_rows: int, d: int, num_sms: int, numbers: int = 32) -> NormTile:
    """A long row is one program, with about `numbers` of its elements a thread: 16 leave room for those
    of a second tensor. Of short rows a program has as many as make 2048 elements, 16 a thread, unless
    that leaves multiprocessors without work. Tuned on an H200."""
    block = triton.next_power_of_2(d)
    rows = max(1, 2048 // block)
    while rows > 1 and triton.cdiv(num_rows, rows) < num_sms:
        rows //= 2
    numbers = 16 if rows > 1 else numbers
    warps = min(16, max(1, rows * block // (32 * numbers)))
    return NormTile(block, rows, 1, warps, triton.cdiv(num_rows, rows))


# ANCHOR_END: norm_tile


@lru_cache(maxsize=8)
def num_multiprocessors(device: torch.device) -> int:
    """Of the GPU; 1 on a CPU, where programs run one after the other."""
    if device.type != "cuda":
        return 1
    count: int = torch.cuda.get_device_properties(device).multi_processor_count
    return count


def as_token_heads(x: Tensor) -> tuple[Tensor, int, int]:
    """x [..., d] as (x, tokens, heads) with x [tokens, heads, d], without a copy where strides allow."""
    if x.dim() == 3:
        return x, x.shape[0], x.shape[1]
    flat = x.reshape(-1, x.shape[-1])
    return flat.unsqueeze(1), len(flat), 1


# ANCHOR: head_tile
@dataclass(frozen=True, slots=True)
class HeadTile:
    """Programs of a token, the heads of q and of k that each of them has, and its warps."""

    tiles: int
    heads: int
    kv_heads: int
    warps: int


@lru_cache(maxsize=256)
def head_tile(tokens: int, heads: int, kv_heads: int, num_sms: int) -> HeadTile:
    """Many tokens: one program each, but at most 32 heads of q. Few: as many as k has heads.

    Of 32 + 8 heads and 8,192 tokens the first is 4% faster on an H200; at one token the second fills
    eight multiprocessors instead of one.
    """
    tiles = triton.cdiv(heads, 32)
    if tokens < 4 * num_sms:
        tiles = max(tiles, kv_heads)
    per_tile = triton.next_power_of_2(triton.cdiv(heads, tiles))
    kv_per_tile = triton.next_power_of_2(triton.cdiv(kv_heads, tiles))
    return HeadTile(tiles, per_tile, kv_per_tile, 4 if per_tile > 8 else 1)


# ANCHOR_END: head_tile
