"""What is left of a step when drafts of it were rejected: table, tree and grammar."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from yaie.core.contracts.drafting import GrammarPlace, Kept


# ANCHOR: kept
def kept(start: int, num_tokens: int, num_drafts: int, num_gained: int, block_size: int) -> Kept:
    """See `yaie.core.contracts.drafting.KeptOf`."""
    # BEGIN SOLUTION 18.6
    if num_gained == 0:
        num_computed, num_rejected = start, num_drafts
    else:
        num_rejected = num_drafts - (num_gained - 1)
        num_computed = start + num_tokens - num_rejected
    return Kept(
        num_computed=num_computed,
        num_blocks=-(-num_computed // block_size),
        num_full=num_computed // block_size,
        num_rejected=num_rejected,
    )
    # END SOLUTION


# ANCHOR_END: kept


# ANCHOR: masks_ahead
def masks_ahead(place: GrammarPlace, drafts: Sequence[int], rows: NDArray[np.uint8]) -> None:
    """See `yaie.core.contracts.drafting.MasksAhead`."""
    # BEGIN SOLUTION 18.6
    num_taken = 0
    place.fill(rows[0])
    for index, token in enumerate(drafts):
        if not rows[index, token // 8] >> token % 8 & 1:
            rows[index + 1 :] = 0xFF
            break
        place.accept(token)
        num_taken += 1
        place.fill(rows[index + 1])
    place.rollback(num_taken)
    # END SOLUTION


# ANCHOR_END: masks_ahead
