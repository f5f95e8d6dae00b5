# Lab 6, your part (edition 2): tasks 6.1, 6.2, 6.3. The rest is given.
"""Which request goes first. Each policy is a queue of waiting requests that never scans itself."""

import heapq
from collections import OrderedDict
from collections.abc import Callable
from itertools import islice

from yaie.core.contracts import KVCacheManager, SchedulingPolicy
from yaie.core.request import Request


# ANCHOR: fcfs
class FCFS:
    """First come, first served; a preempted request keeps its place at the front."""

    def __init__(self, cache: KVCacheManager) -> None:
        self._queue: OrderedDict[Request, None] = OrderedDict()

    def rank(self, request: Request) -> tuple[int, ...]:
        """By arrival."""
        # TODO 6.1: your code here (the reference: 1 line).
        raise NotImplementedError(
            "scheduler task 6.1: not implemented yet; see chapter The scheduler"
        )

    def push(self, request: Request) -> None:
        """Join at the end."""
        # TODO 6.1: your code here (the reference: 1 line).
        raise NotImplementedError(
            "scheduler task 6.1: not implemented yet; see chapter The scheduler"
        )

    def push_front(self, request: Request) -> None:
        """Join at the front."""
        # TODO 6.1: your code here (the reference: 2 lines).
        raise NotImplementedError(
            "scheduler task 6.1: not implemented yet; see chapter The scheduler"
        )

    def peek(self) -> Request | None:
        """The first in the queue."""
        # TODO 6.1: your code here (the reference: 1 line).
        raise NotImplementedError(
            "scheduler task 6.1: not implemented yet; see chapter The scheduler"
        )

    def remove(self, request: Request) -> None:
        """Leave the queue from anywhere, in O(1)."""
        # TODO 6.1: your code here (the reference: 1 line).
        raise NotImplementedError(
            "scheduler task 6.1: not implemented yet; see chapter The scheduler"
        )

    def __len__(self) -> int:
        return len(self._queue)


# ANCHOR_END: fcfs


# ANCHOR: priority
class Priority:
    """Smallest `priority` first; equals by arrival, so a preempted request comes before them."""

    def __init__(self, cache: KVCacheManager) -> None:
        self._heap: list[tuple[tuple[int, ...], Request]] = []
        self._waiting: set[Request] = set()

    def rank(self, request: Request) -> tuple[int, ...]:
        """By priority, then arrival, which no two requests share."""
        # TODO 6.2: your code here (the reference: 1 line).
        raise NotImplementedError(
            "scheduler task 6.2: not implemented yet; see chapter The scheduler"
        )

    def push(self, request: Request) -> None:
        """Join in order of rank."""
        # TODO 6.2: your code here (the reference: 2 lines).
        raise NotImplementedError(
            "scheduler task 6.2: not implemented yet; see chapter The scheduler"
        )

    def push_front(self, request: Request) -> None:
        """Join in order of rank, which already favours the earlier arrival."""
        # TODO 6.2: your code here (the reference: 1 line).
        raise NotImplementedError(
            "scheduler task 6.2: not implemented yet; see chapter The scheduler"
        )

    def peek(self) -> Request | None:
        """The smallest rank still waiting."""
        # TODO 6.2: your code here (the reference: 3 lines).
        raise NotImplementedError(
            "scheduler task 6.2: not implemented yet; see chapter The scheduler"
        )

    def remove(self, request: Request) -> None:
        """Forget a request; its heap entry is dropped when it comes up, or when half are such."""
        # TODO 6.2: your code here (the reference: 6 lines).
        raise NotImplementedError(
            "scheduler task 6.2: not implemented yet; see chapter The scheduler"
        )

    def __len__(self) -> int:
        return len(self._waiting)


# ANCHOR_END: priority


# ANCHOR: longest_prefix_match
class LongestPrefixMatch(FCFS):
    """The longest cached prefix first, among the WINDOW that wait longest (Zheng et al. 2024).

    It serves a prefix while it is in the cache. A request that is first and was passed over
    MAX_SKIPS times goes next all the same, and none waits without end.
    """

    WINDOW = 32
    MAX_SKIPS = 64

    def __init__(self, cache: KVCacheManager) -> None:
        super().__init__(cache)
        self._cache = cache
        self._skips = 0

    def peek(self) -> Request | None:
        """Of equals the one that waits longest."""
        # TODO 6.3: your code here (the reference: 4 lines).
        raise NotImplementedError(
            "scheduler task 6.3: not implemented yet; see chapter The scheduler"
        )

    def remove(self, request: Request) -> None:
        """Count how often the first in line is passed over."""
        # TODO 6.3: your code here (the reference: 2 lines).
        raise NotImplementedError(
            "scheduler task 6.3: not implemented yet; see chapter The scheduler"
        )


# ANCHOR_END: longest_prefix_match


POLICIES: dict[str, Callable[[KVCacheManager], SchedulingPolicy]] = {
    "fcfs": FCFS,
    "priority": Priority,
    "lpm": LongestPrefixMatch,
}
