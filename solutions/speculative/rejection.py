"""Which drafts count that were drawn from probabilities: rejection sampling."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Probs = NDArray[np.float64]


# ANCHOR: rejection
def residual(target: Probs, draft: Probs) -> Probs:
    """See `yaie.core.contracts.drafting.Residual`."""
    # BEGIN SOLUTION 18.3
    rest = np.maximum(target - draft, 0)
    total = rest.sum()
    result: Probs = rest / total if total > 0 else target
    return result
    # END SOLUTION


def rejection_sample(
    drafts: Sequence[int], draft: Probs, target: Probs, rng: np.random.Generator
) -> list[int]:
    """See `yaie.core.contracts.drafting.RejectionSample`."""
    # BEGIN SOLUTION 18.4
    gained: list[int] = []
    for index, token in enumerate(drafts):
        if rng.random() * draft[index, token] >= target[index, token]:
            rest = residual(target[index], draft[index])
            return [*gained, int(rng.choice(len(rest), p=rest))]
        gained.append(token)
    last = target[len(drafts)]
    return [*gained, int(rng.choice(len(last), p=last))]
    # END SOLUTION


# ANCHOR_END: rejection
