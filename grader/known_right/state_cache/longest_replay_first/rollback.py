"""Sequences in the order of how much of them counts, the longest first, as chunks are computed."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from yaie.core.contracts.rollback import Kept, Verified
from yaie.core.contracts.states import StateBatch


def run_ahead(compute: Callable[[], Tensor], pool: Tensor, slots: Tensor, back: Tensor) -> Tensor:
    """See `yaie.core.contracts.rollback.Rollback`."""
    old = torch.index_select(pool, 0, slots)
    result = compute()
    pool.index_put_((back,), old)
    return result


def settle(
    kept: Sequence[Kept], verified: Verified, upload: Callable[[NDArray[Any]], Tensor]
) -> None:
    """See `yaie.core.contracts.rollback.Rollback`."""
    rejected = verified.num_drafts + 1 - verified.num_gained
    counts = verified.lens - rejected
    counts[(verified.num_drafts == 0) | (verified.num_gained == 0)] = 0
    order = np.argsort(-counts, kind="stable")
    order = order[: np.count_nonzero(counts)]
    if order.size == 0:
        return
    firsts = np.concatenate(([0], np.cumsum(verified.lens)[:-1]))
    pieces = [np.arange(firsts[one], firsts[one] + counts[one]) for one in order]
    starts = np.zeros(len(order) + 1, np.int32)
    np.cumsum(counts[order], out=starts[1:])
    batch = StateBatch(
        lens=[int(count) for count in counts[order]],
        starts=upload(starts),
        slots=upload(verified.slots[order]),
        is_fresh=upload(verified.is_fresh[order]),
    )
    places = upload(np.concatenate(pieces))
    for one in kept:
        one.compute(*[torch.index_select(part, 0, places) for part in one.tokens], batch)
