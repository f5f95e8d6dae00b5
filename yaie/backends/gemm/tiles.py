"""How the products are cut, measured on an H200 with the four products of a 0.6B and an 8B model.

A table, not a search at run time: a server must not stop to compile variants of a kernel.
"""

from dataclasses import dataclass
from functools import lru_cache

import triton

MOST_ROWS = 32
"""Of x. With 64 a library's product is as fast."""
NARROW = 2048
"""Columns of the residual up to which any number of rows up to MOST_ROWS gains."""
WIDEST = 4096
"""Columns that a program of `row_kernel` holds at once: 128 a thread of four warps."""
LONG = 2048
"""Columns that it takes at a time where there are more, or few rows of the weight."""


@dataclass(frozen=True, slots=True)
class RowTile:
    """Of `row_kernel`: rows of the weight and columns of a program."""

    block_n: int
    block_k: int
    warps: int


@dataclass(frozen=True, slots=True)
class Tile:
    """Of `tile_kernel`. rows: of x, padded."""

    rows: int
    block_n: int
    block_k: int
    warps: int
    stages: int
    ahead: int


def pays(rows: int, hidden: int) -> bool:
    """Whether a step of so many rows is faster so than with a library's products and single launches.

    Of an 8B model a step of one row took 4.13 ms in place of 4.67, of 32 5.72 in place of 5.86, but of 8
    5.40 in place of 5.03: there the library's products are as near to the limit as tiles come.
    """
    if hidden > NARROW:
        return 1 <= rows <= 2 or MOST_ROWS // 2 < rows <= MOST_ROWS
    return 1 <= rows <= MOST_ROWS


@lru_cache(maxsize=256)
def tile_for(rows: int, n: int, k: int) -> RowTile | Tile:
    """For x [rows, k] and a weight [n, k]. Of `rows` only the next power of two counts, so that a padded
    batch is computed as one that is not."""
    padded = triton.next_power_of_2(rows)
    if padded == 1 or (padded == 2 and k <= WIDEST):
        return _row_tile(n, k)
    padded = max(8, padded)  # fewer are no operand of tensor cores
    if n <= 2048 or (padded == 8 and n * k <= 2**25):
        return Tile(padded, 16, 256, warps=2 if padded <= 16 else 4, stages=6, ahead=1024)
    if k >= 2 * WIDEST:
        return Tile(padded, 64, 256, warps=4, stages=4, ahead=512)
    return Tile(padded, 64, 128, warps=4, stages=4 if padded == 8 else 6, ahead=512)


def _row_tile(n: int, k: int) -> RowTile:
    """Of a 4B model with 2,560 columns in the residual, whose inner layer has 9,216, a product onto the
    residual took 13.1 us in place of 15.8 (9,216 inputs) and 6.6 in place of 7.7 (4,096)."""
    if k > WIDEST:
        return RowTile(4 if k % LONG else 2, LONG, warps=4)
    if k == WIDEST and n < WIDEST:
        return RowTile(4, LONG, warps=4)
    return RowTile(4, triton.next_power_of_2(k), warps=1 if k <= 1024 else 4)
