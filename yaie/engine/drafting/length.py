"""What steps cost, measured: beside how often drafts are right it decides how many are verified."""

from bisect import bisect_right
from collections import deque
from statistics import median

KEPT_TIMES = 9
NEEDED_TIMES = 3
"""Before a size of step counts as measured: a single one may have waited for anything."""


class StepCosts:
    """Seconds that steps of so many tokens took: the median of the latest few of each size.

    Sizes are powers of two, with one in between: 1, 2, 3, 4, 6, 8, 12, ... In between two measured
    sizes a line is drawn, and goes on beyond the last two; never down. Fewer tokens than the smallest
    measured size cost their share of it. A single measured size stands for all larger ones: what has
    not been tried looks cheap, so that it is tried.
    """

    def __init__(self, unknown: float = 1.0) -> None:
        """unknown: what any size costs while nothing is known."""
        self._unknown = unknown
        self._times: dict[int, deque[float]] = {}
        self._points: list[tuple[int, float]] | None = None  # until something new is measured

    def add(self, num_tokens: int, seconds: float) -> None:
        """A step took this long."""
        times = self._times.setdefault(_size(num_tokens), deque(maxlen=KEPT_TIMES))
        times.append(seconds)
        self._points = None

    def forget(self) -> None:
        """Let what was measured become older: another time may be another machine."""
        for times in self._times.values():
            times.popleft()
        self._times = {size: times for size, times in self._times.items() if times}
        self._points = None

    def _measured(self) -> list[tuple[int, float]]:
        """Sizes and their medians: taken when they are asked for, which most steps do not."""
        if self._points is None:
            self._points = sorted(
                (size, median(times))
                for size, times in self._times.items()
                if len(times) >= NEEDED_TIMES
            )
        return self._points

    def seconds(self, num_tokens: int) -> float:
        """Of a step of so many tokens."""
        points = self._measured()
        if not points:
            return self._unknown
        behind = bisect_right(points, (num_tokens, float("inf")))
        if behind == 0:
            return points[0][1] * num_tokens / points[0][0]
        if behind == len(points):
            if behind == 1:
                return points[0][1]
            behind -= 1
        (low, below), (high, above) = points[behind - 1], points[behind]
        line = below + (above - below) * (num_tokens - low) / (high - low)
        return max(line, above) if num_tokens > high else line


def _size(num_tokens: int) -> int:
    """The largest size that is not above."""
    power = 1 << num_tokens.bit_length() - 1
    return power + power // 2 if num_tokens >= power + power // 2 else power
