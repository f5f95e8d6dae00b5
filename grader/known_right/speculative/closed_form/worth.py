"""The rate is kept, not two counts of it, and the sum of its powers is nested."""

from collections.abc import Callable, Sequence

from yaie.core.contracts import drafting

DECAY = 0.97


class Acceptance:
    def __init__(self, decay: float = DECAY) -> None:
        self._decay = decay
        self._weight = 2.0
        self._rate = 0.5

    def add(self, right: int, asked: int) -> None:
        if not asked:
            return
        old = self._weight * self._decay**asked
        self._weight = old + asked
        self._rate = (self._rate * old + right) / self._weight

    @property
    def rate(self) -> float:
        return self._rate

    def expected(self, num_drafts: int) -> float:
        left = 1.0 - self._rate
        if left < 1e-9:
            return num_drafts + 1.0
        total = 1.0
        for _ in range(num_drafts):
            total = total * self._rate + 1.0
        return total


def most_worth(
    offers: Sequence[tuple[drafting.Acceptance, int]],
    num_others: int,
    seconds: Callable[[int], float],
    drafting: Callable[[int], float],
    most: int,
) -> int:
    def speed(number: int) -> float:
        counts = [min(offered, number) for _, offered in offers]
        tokens = sum(counts, len(counts) + num_others)
        gains = (one.expected(count) for (one, _), count in zip(offers, counts, strict=True))
        return (sum(gains) + num_others) / (drafting(number) + seconds(tokens))

    return max(range(most + 1), key=speed)
