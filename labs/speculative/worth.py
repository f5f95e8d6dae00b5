# Lab 18, your part: task 18.7. The rest is given.
"""How many drafts a step should verify: from how often they are right, and from what they cost."""

from collections.abc import Callable, Sequence

from yaie.core.contracts import drafting

DECAY = 0.97


# ANCHOR: acceptance
class Acceptance:
    """See `yaie.core.contracts.drafting.Acceptance`."""

    def __init__(self, decay: float = DECAY) -> None:
        self._decay = decay
        self._right, self._asked = 1.0, 2.0

    def add(self, right: int, asked: int) -> None:
        """Of `asked` samples with a draft, `right` were equal to it."""
        # TODO 18.7: your code here (the reference: 3 lines).
        raise NotImplementedError(
            "speculative task 18.7: not implemented yet; see chapter Speculative decoding"
        )

    @property
    def rate(self) -> float:
        """The share of samples that were equal to their draft."""
        # TODO 18.7: your code here (the reference: 1 line).
        raise NotImplementedError(
            "speculative task 18.7: not implemented yet; see chapter Speculative decoding"
        )

    def expected(self, num_drafts: int) -> float:
        """Tokens that a step with so many drafts brings."""
        # TODO 18.7: your code here (the reference: 1 line).
        raise NotImplementedError(
            "speculative task 18.7: not implemented yet; see chapter Speculative decoding"
        )


# ANCHOR_END: acceptance


# ANCHOR: most_worth
def most_worth(
    offers: Sequence[tuple[drafting.Acceptance, int]],
    num_others: int,
    seconds: Callable[[int], float],
    drafting: Callable[[int], float],
    most: int,
) -> int:
    """See `yaie.core.contracts.drafting.MostWorth`."""
    # TODO 18.7: your code here (the reference: 9 lines).
    raise NotImplementedError(
        "speculative task 18.7: not implemented yet; see chapter Speculative decoding"
    )


# ANCHOR_END: most_worth
