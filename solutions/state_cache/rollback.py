"""Drafts that were wrong: a state goes back to before the step, and on by the tokens that count."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from yaie.core.contracts.rollback import Kept, Verified
from yaie.core.contracts.states import StateBatch


# ANCHOR: run_ahead
def run_ahead(compute: Callable[[], Tensor], pool: Tensor, slots: Tensor, back: Tensor) -> Tensor:
    """See `yaie.core.contracts.rollback.Rollback`."""
    # BEGIN SOLUTION 22.7
    before = pool.index_select(0, slots)
    out = compute()
    pool.index_copy_(0, back, before)
    return out
    # END SOLUTION


# ANCHOR_END: run_ahead


# ANCHOR: settle
def settle(
    kept: Sequence[Kept], verified: Verified, upload: Callable[[NDArray[Any]], Tensor]
) -> None:
    """See `yaie.core.contracts.rollback.Rollback`. Sequences of 3, 4 and 2 rows, of which 0, 2 and 1 are
    moved on by:

        row         0 1 2   3 4 5 6   7 8
        moved on            3 4       7
    """
    # BEGIN SOLUTION 22.7
    lens = verified.lens
    waits = (verified.num_drafts > 0) & (verified.num_gained > 0)
    # What was gained last has not been computed.
    held = waits * (lens - verified.num_drafts + verified.num_gained - 1)
    which = np.flatnonzero(held)
    if not len(which):
        return
    begins = np.cumsum(lens) - lens
    place = np.arange(lens.sum()) - np.repeat(begins, lens)  # of a row in its sequence
    rows = upload(np.flatnonzero(place < np.repeat(held, lens)))
    lens = held[which]
    batch = StateBatch(
        lens=lens.tolist(),
        starts=upload(np.concatenate(([0], np.cumsum(lens))).astype(np.int32)),
        slots=upload(verified.slots[which]),
        is_fresh=upload(verified.is_fresh[which]),
    )
    for one in kept:
        one.compute(*(tokens.index_select(0, rows) for tokens in one.tokens), batch)
    # END SOLUTION


# ANCHOR_END: settle
