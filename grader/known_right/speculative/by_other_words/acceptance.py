"""How many drafts were right is counted first."""

from collections.abc import Sequence
from itertools import takewhile


def accepted(drafts: Sequence[int], samples: Sequence[int]) -> list[int]:
    """See `yaie.core.contracts.drafting.Accepted`."""
    pairs = zip(drafts, samples, strict=False)
    num_right = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return list(takewhile(lambda token: token >= 0, samples[: num_right + 1]))
