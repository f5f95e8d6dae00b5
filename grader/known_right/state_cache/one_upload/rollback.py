"""All that the device has to know goes there in one piece."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from yaie.core.contracts.rollback import Kept, Verified
from yaie.core.contracts.states import StateBatch


def run_ahead(compute: Callable[[], Tensor], pool: Tensor, slots: Tensor, back: Tensor) -> Tensor:
    """See `yaie.core.contracts.rollback.Rollback`."""
    undo = pool.new_empty(len(slots), *pool.shape[1:]).copy_(pool[slots])
    out = compute()
    pool.index_copy_(0, back, undo)
    return out


def settle(
    kept: Sequence[Kept], verified: Verified, upload: Callable[[NDArray[Any]], Tensor]
) -> None:
    """See `yaie.core.contracts.rollback.Rollback`."""
    goes_on = np.logical_and(verified.num_drafts, verified.num_gained)
    n = int(goes_on.sum())
    if n == 0:
        return
    before_drafts = verified.lens - verified.num_drafts
    ends = np.cumsum(verified.lens)
    begins = (ends - verified.lens)[goes_on]
    lens = (before_drafts + verified.num_gained - 1)[goes_on]
    starts = np.insert(np.cumsum(lens), 0, 0)
    rows = np.arange(starts[-1]) + np.repeat(begins - starts[:-1], lens)
    told = [starts, verified.slots[goes_on], verified.is_fresh[goes_on].astype(np.int64), rows]
    there = upload(np.concatenate(told))
    batch = StateBatch(
        lens=lens.tolist(),
        starts=there[: n + 1].int(),
        slots=there[n + 1 : 2 * n + 1],
        is_fresh=there[2 * n + 1 : 3 * n + 1].bool(),
    )
    at = there[3 * n + 1 :]
    for one in kept:
        one.compute(*(x.index_select(0, at) for x in one.tokens), batch)
