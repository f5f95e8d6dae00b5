"""Drafts and samples as arrays, compared at once."""

from collections.abc import Sequence

import numpy as np


def accepted(drafts: Sequence[int], samples: Sequence[int]) -> list[int]:
    """See `yaie.core.contracts.drafting.Accepted`."""
    drawn = np.asarray(samples, dtype=np.int64)
    differs = np.flatnonzero(np.asarray(drafts, dtype=np.int64) != drawn[: len(drafts)])
    end = int(differs[0]) + 1 if len(differs) else len(samples)
    failed = np.flatnonzero(drawn[:end] < 0)
    found: list[int] = drawn[: int(failed[0]) if len(failed) else end].tolist()
    return found
