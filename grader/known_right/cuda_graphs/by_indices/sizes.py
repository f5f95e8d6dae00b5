"""Sizes are counted up; the first that is enough is the smallest of those that are."""

from collections.abc import Sequence

from yaie.core.contracts.graphs import Size
from yaie.core.step import StepInput

SMALL_SIZES = (1, 2, 4)
SIZE_STEP = 8


def padded_sizes(largest: int) -> list[int]:
    """Rows that steps of decodes alone are padded to, ascending: 1, 2, 4, multiples of 8, and `largest`.
    None is more than `largest`."""
    found, size = [], 1
    while size < largest:
        found.append(size)
        size += size if size < SIZE_STEP else SIZE_STEP
    return [*found, largest] if largest > 0 else []


def size_for(sizes: Sequence[Size], needed: Size) -> Size | None:
    """The smallest size with room for the decodes, the tokens and the chunks of `needed`; None if there
    is none. sizes: in ascending order of rows."""
    enough = (size for size in sizes if all(a >= b for a, b in zip(size, needed, strict=True)))
    return min(enough, key=lambda size: size.rows, default=None)


def size_of(step: StepInput) -> Size:
    """What a step needs: its single tokens come first, and all others are chunks."""
    decodes = step.num_decodes
    tokens = int(step.num_tokens[decodes:].sum())
    return Size(decodes, tokens, len(step.seats) - decodes)
