"""The closed form, and the best by a key."""

from collections.abc import Callable, Sequence

from yaie.core.contracts import drafting


class Acceptance:
    """See `yaie.core.contracts.drafting.Acceptance`."""

    def __init__(self, decay: float = 0.97) -> None:
        self._decay = decay
        self._right = self._wrong = 1.0

    def add(self, right: int, asked: int) -> None:
        """`asked` draws met a draft, `right` of them were equal to it."""
        keep = self._decay**asked
        self._right = keep * self._right + right
        self._wrong = keep * self._wrong + (asked - right)

    @property
    def rate(self) -> float:
        """The share of draws that were equal to their draft."""
        return self._right / (self._right + self._wrong)

    def expected(self, num_drafts: int) -> float:
        """Tokens that a step with so many drafts brings."""
        tokens = 1.0
        for _ in range(num_drafts):
            tokens = 1.0 + self.rate * tokens
        return tokens


def most_worth(
    offers: Sequence[tuple[drafting.Acceptance, int]],
    num_others: int,
    seconds: Callable[[int], float],
    drafting: Callable[[int], float],
    most: int,
) -> int:
    """See `yaie.core.contracts.drafting.MostWorth`."""

    def speed(number: int) -> float:
        rows = num_others
        gain = float(num_others)
        for acceptance, offered in offers:
            count = number if number < offered else offered
            rows += count + 1
            gain += acceptance.expected(count)
        return gain / (seconds(rows) + drafting(number))

    return max(range(most + 1), key=speed)
