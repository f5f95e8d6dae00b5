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
        # BEGIN SOLUTION 18.7
        keep = self._decay**asked
        self._right = self._right * keep + right
        self._asked = self._asked * keep + asked
        # END SOLUTION

    @property
    def rate(self) -> float:
        """The share of samples that were equal to their draft."""
        # BEGIN SOLUTION 18.7
        return self._right / self._asked
        # END SOLUTION

    def expected(self, num_drafts: int) -> float:
        """Tokens that a step with so many drafts brings."""
        # BEGIN SOLUTION 18.7
        return sum((self.rate**count for count in range(1, num_drafts + 1)), 1.0)
        # END SOLUTION


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
    # BEGIN SOLUTION 18.7
    best, best_speed = 0, 0.0
    for number in range(most + 1):
        taken = [(acceptance, min(number, offered)) for acceptance, offered in offers]
        size = num_others + sum(1 + count for _, count in taken)
        gain = num_others + sum(acceptance.expected(count) for acceptance, count in taken)
        speed = gain / (seconds(size) + drafting(number))
        if speed > best_speed:
            best, best_speed = number, speed
    return best
    # END SOLUTION


# ANCHOR_END: most_worth
