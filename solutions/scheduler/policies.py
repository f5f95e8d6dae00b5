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
        # BEGIN SOLUTION 6.1
        return (request.arrival,)
        # END SOLUTION

    def push(self, request: Request) -> None:
        """Join at the end."""
        # BEGIN SOLUTION 6.1
        self._queue[request] = None
        # END SOLUTION

    def push_front(self, request: Request) -> None:
        """Join at the front."""
        # BEGIN SOLUTION 6.1
        self._queue[request] = None
        self._queue.move_to_end(request, last=False)
        # END SOLUTION

    def peek(self) -> Request | None:
        """The first in the queue."""
        # BEGIN SOLUTION 6.1
        return next(iter(self._queue), None)
        # END SOLUTION

    def remove(self, request: Request) -> None:
        """Leave the queue from anywhere, in O(1)."""
        # BEGIN SOLUTION 6.1
        del self._queue[request]
        # END SOLUTION

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
        # BEGIN SOLUTION 6.2
        return request.priority, request.arrival
        # END SOLUTION

    def push(self, request: Request) -> None:
        """Join in order of rank."""
        # BEGIN SOLUTION 6.2
        self._waiting.add(request)
        heapq.heappush(self._heap, (self.rank(request), request))
        # END SOLUTION

    def push_front(self, request: Request) -> None:
        """Join in order of rank, which already favours the earlier arrival."""
        # BEGIN SOLUTION 6.2
        self.push(request)
        # END SOLUTION

    def peek(self) -> Request | None:
        """The smallest rank still waiting."""
        # BEGIN SOLUTION 6.2
        while self._heap and self._heap[0][1] not in self._waiting:
            heapq.heappop(self._heap)
        return self._heap[0][1] if self._heap else None
        # END SOLUTION

    def remove(self, request: Request) -> None:
        """Forget a request; its heap entry is dropped when it comes up, or when half are such."""
        # BEGIN SOLUTION 6.2
        self._waiting.remove(request)
        if self._heap[0][1] is request:
            heapq.heappop(self._heap)
        elif len(self._heap) > 2 * len(self._waiting) + 64:
            self._heap = [(self.rank(waiting), waiting) for waiting in self._waiting]
            heapq.heapify(self._heap)
        # END SOLUTION

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
        # BEGIN SOLUTION 6.3
        if self._skips >= self.MAX_SKIPS:
            return super().peek()
        window = islice(self._queue, self.WINDOW)
        return max(window, key=self._cache.cached_tokens, default=None)
        # END SOLUTION

    def remove(self, request: Request) -> None:
        """Count how often the first in line is passed over."""
        # BEGIN SOLUTION 6.3
        self._skips = 0 if request is super().peek() else self._skips + 1
        super().remove(request)
        # END SOLUTION


# ANCHOR_END: longest_prefix_match


POLICIES: dict[str, Callable[[KVCacheManager], SchedulingPolicy]] = {
    "fcfs": FCFS,
    "priority": Priority,
    "lpm": LongestPrefixMatch,
}
