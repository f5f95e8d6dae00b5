"""Rows are filled in a buffer first, drafts are taken back one by one; rounding up is a remainder."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from yaie.core.contracts.drafting import GrammarPlace, Kept


def kept(start: int, num_tokens: int, num_drafts: int, num_gained: int, block_size: int) -> Kept:
    right = max(num_gained - 1, 0)
    known = num_tokens - num_drafts + right if num_gained else 0
    full, rest = divmod(start + known, block_size)
    return Kept(start + known, full + (rest > 0), full, num_drafts - right)


def masks_ahead(place: GrammarPlace, drafts: Sequence[int], rows: NDArray[np.uint8]) -> None:
    buffer = np.zeros(rows.shape[1], dtype=np.uint8)
    taken = 0
    try:
        for number in range(len(rows)):
            place.fill(buffer)
            rows[number] = buffer
            if number == len(drafts):
                break
            bits = np.unpackbits(buffer, bitorder="little")
            if not bits[drafts[number]] or not place.accept(drafts[number]):
                rows[number + 1 :] = 255
                break
            taken += 1
    finally:
        for _ in range(taken):
            place.rollback(1)
