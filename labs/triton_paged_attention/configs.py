# Lab 11, your part (edition 2): task 11.2. The rest is given.
"""How large the tiles are, and with how many warps and stages Triton runs them.

A table, not a search at run time: a server must not stop to compile eight variants of a kernel.
"""

from dataclasses import dataclass

import torch
import triton


@dataclass(frozen=True, slots=True)
class Config:
    """tile: keys at a time. rows: of a tile of queries, at least. warps, stages: as Triton has them.

    per_sm: programs that share a multiprocessor.
    """

    tile: int
    warps: int
    stages: int
    rows: int = 16
    per_sm: int = 3


def tile_rows(queries: int, group: int) -> int:
    """Rows of a tile that holds so many queries of a group of heads: the next power of two, or 16."""
    if group == 1 and queries == 1:
        return 16
    # TODO 11.2: your code here (the reference: 1 line).
    raise NotImplementedError(
        "triton_paged_attention task 11.2: not implemented yet; see chapter Paged attention in Triton"
    )


MANY_PROGRAMS = 1024
"""As many as make up for each being slow: eight a multiprocessor."""


def decode_config(d: int, dtype: torch.dtype, rows: int = 16, programs: int = 0) -> Config:
    """Many small programs, each with three tiles of 8 KiB of keys and of values on their way; or fewer,
    with twice the tile and the warps, so that one which is left alone at the end is done sooner.

    programs: pairs of a sequence and a key head. rows: of the tile of queries; more of them, or longer
    ones, take more warps, or the sums would not fit into registers. Measured on an H200.
    """
    dims = triton.next_power_of_2(d)
    if dtype == torch.float32:
        return Config(max(16, min(128, 2**12 // dims)), warps=4, stages=3)
    if programs < MANY_PROGRAMS:
        tile = max(16, min(128, 2**13 // dims))
        return Config(tile, warps=min(8, max(1, rows * dims // 512)), stages=3, per_sm=3)
    tile = max(16, min(128, 2**12 // dims))
    return Config(tile, warps=min(8, max(1, rows * dims // 1024)), stages=4, per_sm=4)


def prefill_config(d: int, dtype: torch.dtype, rows: int) -> Config:
    """rows: as many as the longest chunk fills."""
    dims = triton.next_power_of_2(d)
    if dtype == torch.float32:
        # Without tensor cores the tiles live in registers.
        return Config(32, warps=4, stages=2, rows=32 if dims < 256 else 16)
    tile = 64 if dims < 256 else 32
    if rows <= 64:
        return Config(tile, warps=4, stages=3, rows=rows)
    return Config(tile, warps=8, stages=4 if dims < 256 else 3, rows=128)
