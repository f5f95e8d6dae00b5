"""All random numbers of a step at once, and draws by the inverse of the distribution."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Probs = NDArray[np.float64]


def residual(target: Probs, draft: Probs) -> Probs:
    """See `yaie.core.contracts.drafting.Residual`."""
    missing: Probs = target - np.minimum(target, draft)
    if not missing.any():
        return target.copy()
    return missing / missing.sum()


def rejection_sample(
    drafts: Sequence[int], draft: Probs, target: Probs, rng: np.random.Generator
) -> list[int]:
    """See `yaie.core.contracts.drafting.RejectionSample`."""
    numbers = rng.random(len(drafts) + 1)
    rows, tokens = np.arange(len(drafts)), np.asarray(drafts, dtype=np.int64)
    ratios = target[rows, tokens] / draft[rows, tokens]
    refused = np.flatnonzero(numbers[:-1] >= ratios)
    count = int(refused[0]) if len(refused) else len(drafts)
    last = residual(target[count], draft[count]) if len(refused) else target[count]
    sums = last.cumsum()
    token = int(np.searchsorted(sums, numbers[-1] * sums[-1], side="right"))
    return [*drafts[:count], token]
