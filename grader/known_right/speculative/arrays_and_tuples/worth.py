"""Counts in a tuple; what a number of drafts brings is looked up once it is known, in this call."""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate, repeat
from operator import mul

from yaie.core.contracts import drafting


class Acceptance:
    """See `yaie.core.contracts.drafting.Acceptance`."""

    def __init__(self, decay: float = 0.97) -> None:
        self._decay = decay
        self._counts = (1.0, 2.0)

    def add(self, right: int, asked: int) -> None:
        """`asked` samples met a draft, `right` of them were equal to it."""
        keep = self._decay**asked
        one, other = self._counts
        self._counts = (one * keep + right, other * keep + asked)

    @property
    def rate(self) -> float:
        """The share of samples that were equal to their draft."""
        right, asked = self._counts
        return right / asked

    def expected(self, num_drafts: int) -> float:
        """Tokens that a step with so many drafts brings."""
        rate = self.rate
        return sum(accumulate(repeat(rate, num_drafts), mul, initial=1.0))


def most_worth(
    offers: Sequence[tuple[drafting.Acceptance, int]],
    num_others: int,
    seconds: Callable[[int], float],
    drafting: Callable[[int], float],
    most: int,
) -> int:
    """See `yaie.core.contracts.drafting.MostWorth`."""

    @cache
    def brings(index: int, count: int) -> float:
        return offers[index][0].expected(count)

    speeds = []
    for number in range(most + 1):
        counts = [min(number, offered) for _, offered in offers]
        gain = num_others + sum(brings(index, count) for index, count in enumerate(counts))
        size = num_others + len(counts) + sum(counts)
        speeds.append(gain / (seconds(size) + drafting(number)))
    return speeds.index(max(speeds))
