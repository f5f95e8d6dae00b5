"""Sizes by a loop, and the size of a step by a filter."""

from collections.abc import Sequence

from yaie.core.contracts.graphs import Size
from yaie.core.step import StepInput

SMALL_SIZES = (1, 2, 4)
SIZE_STEP = 8


def padded_sizes(largest: int) -> list[int]:
    """Rows that steps of decodes alone are padded to, ascending."""
    sizes, size = [], 1
    while size < largest:
        sizes.append(size)
        size = 2 * size if size < SIZE_STEP else size + SIZE_STEP
    return [*sizes, largest]


def size_for(sizes: Sequence[Size], needed: Size) -> Size | None:
    """The first that is enough."""
    enough = (
        size for size in sizes if all(have >= need for have, need in zip(size, needed, strict=True))
    )
    return next(enough, None)


def size_of(step: StepInput) -> Size:
    """What a step needs: its single tokens come first, and all others are chunks."""
    decodes = step.num_decodes
    tokens = int(step.num_tokens[decodes:].sum())
    return Size(decodes, tokens, len(step.seats) - decodes)
