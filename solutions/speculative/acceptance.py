"""Which samples of a step count: drafts that are single tokens, compared with seeded samples."""

from collections.abc import Sequence


# ANCHOR: accepted
def accepted(drafts: Sequence[int], samples: Sequence[int]) -> list[int]:
    """See `yaie.core.contracts.drafting.Accepted`."""
    # BEGIN SOLUTION 18.2
    gained: list[int] = []
    for index, token in enumerate(samples):
        if token < 0:
            break
        gained.append(token)
        if index < len(drafts) and token != drafts[index]:
            break
    return gained
    # END SOLUTION


# ANCHOR_END: accepted
