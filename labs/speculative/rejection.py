# Lab 18, your part: tasks 18.3, 18.4. The rest is given.
"""Which drafts count that were drawn from probabilities: rejection sampling."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Probs = NDArray[np.float64]


# ANCHOR: rejection
def residual(target: Probs, draft: Probs) -> Probs:
    """See `yaie.core.contracts.drafting.Residual`."""
    # TODO 18.3: your code here (the reference: 4 lines).
    raise NotImplementedError(
        "speculative task 18.3: not implemented yet; see chapter Speculative decoding"
    )


def rejection_sample(
    drafts: Sequence[int], draft: Probs, target: Probs, rng: np.random.Generator
) -> list[int]:
    """See `yaie.core.contracts.drafting.RejectionSample`."""
    # TODO 18.4: your code here (the reference: 8 lines).
    raise NotImplementedError(
        "speculative task 18.4: not implemented yet; see chapter Speculative decoding"
    )


# ANCHOR_END: rejection
