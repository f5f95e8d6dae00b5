"""Rows counted out in lists, and a state put back whatever becomes of the step."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from yaie.core.contracts.rollback import Kept, Verified
from yaie.core.contracts.states import StateBatch


def run_ahead(compute: Callable[[], Tensor], pool: Tensor, slots: Tensor, back: Tensor) -> Tensor:
    """See `yaie.core.contracts.rollback.Rollback`."""
    saved = pool[slots]
    try:
        return compute()
    finally:
        pool[back] = saved


def settle(
    kept: Sequence[Kept], verified: Verified, upload: Callable[[NDArray[Any]], Tensor]
) -> None:
    """See `yaie.core.contracts.rollback.Rollback`."""
    rows: list[int] = []
    lens: list[int] = []
    which: list[int] = []
    begin = 0
    columns = (verified.lens.tolist(), verified.num_drafts.tolist(), verified.num_gained.tolist())
    for number, (length, drafts, gained) in enumerate(zip(*columns, strict=True)):
        if drafts and gained:
            accepted = gained - 1
            lens.append(length - (drafts - accepted))
            rows += range(begin, begin + lens[-1])
            which.append(number)
        begin += length
    if not which:
        return
    ends = [sum(lens[:count]) for count in range(len(lens) + 1)]
    batch = StateBatch(
        lens,
        upload(np.array(ends, np.int32)),
        upload(np.array([verified.slots[number] for number in which], np.int64)),
        upload(np.array([verified.is_fresh[number] for number in which], np.bool_)),
    )
    at = upload(np.array(rows, np.int64))
    for compute, tokens in kept:
        compute(*[one[at] for one in tokens], batch)
