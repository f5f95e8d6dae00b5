"""The sizes that decode steps are padded to: a graph is recorded for each of them."""

from bisect import bisect_left
from collections.abc import Sequence

# ANCHOR: sizes
SMALL_SIZES = (1, 2, 4)
SIZE_STEP = 8


def padded_sizes(largest: int) -> list[int]:
    """Rows that steps are padded to, ascending: 1, 2, 4, multiples of 8, and `largest`. None is more
    than `largest`."""
    # BEGIN SOLUTION 17.1
    sizes = {*SMALL_SIZES, *range(SIZE_STEP, largest, SIZE_STEP), largest}
    return sorted(size for size in sizes if size <= largest)
    # END SOLUTION


def size_for(sizes: Sequence[int], rows: int) -> int:
    """The smallest of these ascending sizes that holds so many rows. The largest one does."""
    # BEGIN SOLUTION 17.1
    return sizes[bisect_left(sizes, rows)]
    # END SOLUTION


# ANCHOR_END: sizes
