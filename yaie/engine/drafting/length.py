"""How many drafts a step should verify: from how often they are right, and from what a step costs."""

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from statistics import median

KEPT_TIMES = 9
NEEDED_TIMES = 3
"""Before a size of step counts as measured: a single one may have waited for anything."""
DECAY = 0.97
"""What a count of drafts is worth after one more."""


class Acceptance:
    """How often a request's drafts are right, as the share of draws at which the next draft was it.

    Old draws count less. At first, as if one of two had been right.
    """

    def __init__(self) -> None:
        self._right = self._asked = 0.0
        self.add(1, 2)

    def add(self, right: int, asked: int) -> None:
        """`asked` draws met a draft, `right` of them were equal to it."""
        keep = DECAY**asked
        self._right = self._right * keep + right
        self._asked = self._asked * keep + asked

    @property
    def rate(self) -> float:
        """Between 0 and 1, both excluded at first."""
        return self._right / self._asked

    def expected(self, num_drafts: int) -> float:
        """Tokens that a step with so many drafts brings, if each is right at this rate.

        1 + a + a^2 + ... + a^k (Leviathan et al. 2023, equation 1).
        """
        rate = min(self.rate, 0.999)
        return float((1 - rate ** (num_drafts + 1)) / (1 - rate))


class StepCosts:
    """Seconds that steps of so many tokens took: the median of the latest few of each size.

    Sizes are powers of two, with one in between: 1, 2, 3, 4, 6, 8, 12, ... In between two measured
    sizes a line is drawn. What has not been tried looks cheap, so that it is tried: more tokens than the
    largest measured size cost what that costs, and fewer than the smallest cost their share of it.
    """

    def __init__(self) -> None:
        self._times: dict[int, deque[float]] = {}
        self._points: list[tuple[int, float]] = []

    def add(self, num_tokens: int, seconds: float) -> None:
        """A step of decodes took this long."""
        times = self._times.setdefault(_size(num_tokens), deque(maxlen=KEPT_TIMES))
        times.append(seconds)
        self._note()

    def forget(self) -> None:
        """Let what was measured become older: another time may be another machine."""
        for times in self._times.values():
            times.popleft()
        self._times = {size: times for size, times in self._times.items() if times}
        self._note()

    def _note(self) -> None:
        self._points = sorted(
            (size, median(times))
            for size, times in self._times.items()
            if len(times) >= NEEDED_TIMES
        )

    def seconds(self, num_tokens: int) -> float:
        """Of a step of so many tokens; 1.0 while nothing is known."""
        points = self._points
        if not points:
            return 1.0
        behind = bisect_right(points, (num_tokens, float("inf")))
        if behind == 0:
            return points[0][1] * num_tokens / points[0][0]
        if behind == len(points):
            return points[-1][1]
        (low, below), (high, above) = points[behind - 1], points[behind]
        return below + (above - below) * (num_tokens - low) / (high - low)


def _size(num_tokens: int) -> int:
    """The largest size that is not above."""
    power = 1 << num_tokens.bit_length() - 1
    return power + power // 2 if num_tokens >= power + power // 2 else power


def most_worth(
    offers: Sequence[tuple[Acceptance, int]], num_others: int, costs: StepCosts, most: int
) -> int:
    """How many drafts, of those on offer, bring the most tokens a second; 0 if none are worth it.

    offers: of each request, how often it is right and how many drafts it has. num_others: requests that
    decode without. The same number is taken of all.
    """

    def tokens_a_second(number: int) -> float:
        taken = [(acceptance, min(number, offered)) for acceptance, offered in offers]
        size = num_others + sum(1 + count for _, count in taken)
        gain = num_others + sum(acceptance.expected(count) for acceptance, count in taken)
        return gain / costs.seconds(size)

    return max(range(most + 1), key=lambda number: (tokens_a_second(number), -number))
