"""What is kept by what was gained; the grammar by recursion."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from yaie.core.contracts.drafting import GrammarPlace, Kept


def kept(start: int, num_tokens: int, num_drafts: int, num_gained: int, block_size: int) -> Kept:
    """See `yaie.core.contracts.drafting.KeptOf`."""
    num_right = max(0, num_gained - 1)
    num_known = num_tokens - num_drafts if num_gained else 0
    computed = start + num_known + num_right
    full, rest = divmod(computed, block_size)
    return Kept(computed, full + (rest > 0), full, num_drafts - num_right)


def masks_ahead(place: GrammarPlace, drafts: Sequence[int], rows: NDArray[np.uint8]) -> None:
    """See `yaie.core.contracts.drafting.MasksAhead`."""
    place.fill(rows[0])
    if not drafts:
        return
    allowed = np.unpackbits(rows[0], bitorder="little")
    if not allowed[drafts[0]]:
        rows[1:].fill(255)
        return
    place.accept(drafts[0])
    try:
        masks_ahead(place, drafts[1:], rows[1:])
    finally:
        place.rollback(1)
