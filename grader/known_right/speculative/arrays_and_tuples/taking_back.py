"""Which blocks hold is asked of a range; the grammar goes back whatever happens."""

from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np
from numpy.typing import NDArray

from yaie.core.contracts.drafting import GrammarPlace, Kept


def kept(start: int, num_tokens: int, num_drafts: int, num_gained: int, block_size: int) -> Kept:
    """See `yaie.core.contracts.drafting.KeptOf`."""
    rejected = num_drafts - max(num_gained - 1, 0)
    holds = range(start + num_tokens - rejected if num_gained else start)
    blocks = range(0, len(holds), block_size)
    return Kept(len(holds), len(blocks), len(holds[block_size - 1 :: block_size]), rejected)


def masks_ahead(place: GrammarPlace, drafts: Sequence[int], rows: NDArray[np.uint8]) -> None:
    """See `yaie.core.contracts.drafting.MasksAhead`."""
    with ExitStack() as back:
        place.fill(rows[0])
        for number, token in enumerate(drafts, 1):
            byte, bit = divmod(token, 8)
            if not int(rows[number - 1, byte]) & 1 << bit:
                rows[number:] = 255
                return
            place.accept(token)
            back.callback(place.rollback, 1)
            place.fill(rows[number])
