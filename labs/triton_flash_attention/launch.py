"""How large the tiles of a launch are, and how many warps share one."""

from dataclasses import dataclass, replace

import torch


# ANCHOR: tiles
@dataclass(frozen=True, slots=True)
class Tiles:
    """queries, keys: rows of a query tile and of a key tile, powers of two, at least 16.

    num_warps: of a program. num_stages: key or query tiles that are being loaded while one is used.
    """

    queries: int
    keys: int
    num_warps: int
    num_stages: int

    def within(self, tq: int, tk: int, mask_block: int | None) -> "Tiles":
        """No larger than the sequences need, and within one entry of the block mask."""
        queries = min(self.queries, _power_of_two(tq))
        keys = min(self.keys, _power_of_two(tk))
        if mask_block is not None:
            queries, keys = min(queries, mask_block), min(keys, mask_block)
        if (queries, keys) == (self.queries, self.keys):
            return self
        return replace(self, queries=queries, keys=keys)


def _power_of_two(number: int) -> int:
    """The smallest that is no smaller than `number`, nor than the 16 that `tl.dot` asks for."""
    return 1 << max(4, (number - 1).bit_length())


def padded_head_dim(dim: int) -> int:
    """Tiles have a power of two of columns, at least 16; those from `dim` on hold 0."""
    return _power_of_two(dim)


# By padded head size, for 16-bit inputs; the fastest of some twenty measured on an H200 (8,192 tokens,
# 32 heads, causal, bfloat16).
FORWARD = {64: Tiles(128, 64, 4, 3), 128: Tiles(64, 64, 4, 3), 256: Tiles(128, 64, 8, 2)}
BACKWARD_KEYS = {64: Tiles(64, 128, 8, 3), 128: Tiles(64, 128, 8, 2), 256: Tiles(32, 64, 8, 1)}
BACKWARD_QUERIES = {64: Tiles(128, 64, 4, 3), 128: Tiles(128, 64, 8, 3), 256: Tiles(64, 32, 8, 1)}
# float32 goes through the ordinary units, one multiplication at a time: large tiles only make
# compilation slow.
WIDE = {64: Tiles(32, 32, 8, 1), 128: Tiles(16, 16, 4, 1), 256: Tiles(16, 16, 4, 1)}


def tiles_for(table: dict[int, Tiles], dim: int, dtype: torch.dtype) -> Tiles:
    """The entry of a table for heads of `dim` elements of `dtype`."""
    table = WIDE if dtype == torch.float32 else table
    return table[min(max(padded_head_dim(dim), 64), 256)]


# ANCHOR_END: tiles
