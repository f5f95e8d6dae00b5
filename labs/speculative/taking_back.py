# Lab 18, your part: task 18.6. The rest is given.
"""What is left of a step when drafts of it were rejected: table, tree and grammar."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from yaie.core.contracts.drafting import GrammarPlace, Kept


# ANCHOR: kept
def kept(start: int, num_tokens: int, num_drafts: int, num_gained: int, block_size: int) -> Kept:
    """See `yaie.core.contracts.drafting.KeptOf`."""
    # TODO 18.6: your code here (the reference: 11 lines).
    raise NotImplementedError(
        "speculative task 18.6: not implemented yet; see chapter Speculative decoding"
    )


# ANCHOR_END: kept


# ANCHOR: masks_ahead
def masks_ahead(place: GrammarPlace, drafts: Sequence[int], rows: NDArray[np.uint8]) -> None:
    """See `yaie.core.contracts.drafting.MasksAhead`."""
    # TODO 18.6: your code here (the reference: 10 lines).
    raise NotImplementedError(
        "speculative task 18.6: not implemented yet; see chapter Speculative decoding"
    )


# ANCHOR_END: masks_ahead
