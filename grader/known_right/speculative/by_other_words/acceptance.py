"""How many drafts were right is counted first."""

from collections.abc import Sequence
from itertools import takewhile


def accepted(drafts: Sequence[int], draws: Sequence[int]) -> list[int]:
    """See `yaie.core.contracts.drafting.Accepted`."""
    pairs = zip(drafts, draws, strict=False)
    num_right = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return list(takewhile(lambda token: token >= 0, draws[: num_right + 1]))
