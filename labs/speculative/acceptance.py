# Lab 18, your part: task 18.2. The rest is given.
"""Which samples of a step count: drafts that are single tokens, compared with seeded samples."""

from collections.abc import Sequence


# ANCHOR: accepted
def accepted(drafts: Sequence[int], samples: Sequence[int]) -> list[int]:
    """See `yaie.core.contracts.drafting.Accepted`."""
    # TODO 18.2: your code here (the reference: 8 lines).
    raise NotImplementedError(
        "speculative task 18.2: not implemented yet; see chapter Speculative decoding"
    )


# ANCHOR_END: accepted
