"""Sizes by a loop, and the size of a step by a walk."""

from collections.abc import Sequence

SMALL_SIZES = (1, 2, 4)
SIZE_STEP = 8


def padded_sizes(largest: int) -> list[int]:
    """Rows that steps are padded to, ascending."""
    sizes, size = [], 1
    while size < largest:
        sizes.append(size)
        size = 2 * size if size < SIZE_STEP else size + SIZE_STEP
    return [*sizes, largest]


def size_for(sizes: Sequence[int], rows: int) -> int:
    """The first of the ascending sizes that is enough."""
    return next(size for size in sizes if size >= rows)
