"""Sizes from a table that is made once; the lists that are handed out are copies of it."""

from collections.abc import Sequence
from functools import lru_cache

from yaie.core.contracts.graphs import Size
from yaie.core.step import StepInput

SMALL_SIZES = (1, 2, 4)
SIZE_STEP = 8


@lru_cache(maxsize=8)
def _table(largest: int) -> tuple[int, ...]:
    small = [size for size in SMALL_SIZES if size < largest]
    return (*small, *range(SIZE_STEP, largest, SIZE_STEP), largest)


def padded_sizes(largest: int) -> list[int]:
    return list(_table(largest))


def size_for(sizes: Sequence[Size], needed: Size) -> Size | None:
    for index in range(len(sizes)):
        size = sizes[index]
        if not (
            needed.decodes > size.decodes
            or needed.tokens > size.tokens
            or needed.chunks > size.chunks
        ):
            return size
    return None


def size_of(step: StepInput) -> Size:
    decodes = step.num_decodes
    tokens = int(step.num_tokens[decodes:].sum())
    return Size(decodes, tokens, len(step.seats) - decodes)
