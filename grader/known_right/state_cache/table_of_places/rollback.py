"""A table of places, a row for each sequence, of which those before its count are taken."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from yaie.core.contracts.rollback import Kept, Verified
from yaie.core.contracts.states import StateBatch


def run_ahead(compute: Callable[[], Tensor], pool: Tensor, slots: Tensor, back: Tensor) -> Tensor:
    """See `yaie.core.contracts.rollback.Rollback`."""
    states = pool[slots]
    out = compute()
    pool[back] = states
    return out


def settle(
    kept: Sequence[Kept], verified: Verified, upload: Callable[[NDArray[Any]], Tensor]
) -> None:
    """See `yaie.core.contracts.rollback.Rollback`."""
    accepted = verified.num_gained - 1
    counts = verified.lens - verified.num_drafts + accepted
    moves = (accepted >= 0) & (verified.num_drafts != 0)
    if not moves.any():
        return
    counts = counts[moves]
    begins = (np.cumsum(verified.lens) - verified.lens)[moves]
    column = np.arange(counts.max())
    table = begins[:, None] + column
    places = upload(table[column < counts[:, None]])
    batch = StateBatch(
        counts.tolist(),
        upload(np.append(0, counts).cumsum().astype(np.int32)),
        upload(verified.slots[moves]),
        upload(verified.is_fresh[moves]),
    )
    for kind in kept:
        kind.compute(*(one[places] for one in kind.tokens), batch)
