"""Queues that leave the places of what has left, and clear them away when they come up or are many.

Different from the reference: FCFS has a deque of seats, of which those that were left are empty;
Priority removes nothing from its heap before it comes up; longest prefix match sorts its window.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice

from yaie.core.contracts import KVCacheManager, SchedulingPolicy
from yaie.core.request import Request

SPARE = 64
"""Empty seats that are no matter."""


class _Seat:
    """Of one request, until it leaves."""

    __slots__ = ("request",)

    def __init__(self, request: Request) -> None:
        self.request: Request | None = request


class FCFS:
    """Seats in a row."""

    def __init__(self, cache: KVCacheManager) -> None:
        self._row: deque[_Seat] = deque()
        self._seats: dict[Request, _Seat] = {}

    def rank(self, request: Request) -> tuple[int, ...]:
        """By arrival."""
        return (request.arrival,)

    def push(self, request: Request) -> None:
        """Join at the end."""
        self._seats[request] = seat = _Seat(request)
        self._row.append(seat)

    def push_front(self, request: Request) -> None:
        """Join at the front."""
        self._seats[request] = seat = _Seat(request)
        self._row.appendleft(seat)

    def peek(self) -> Request | None:
        """The first that is taken."""
        while self._row and self._row[0].request is None:
            self._row.popleft()
        return self._row[0].request if self._row else None

    def remove(self, request: Request) -> None:
        """The seat stays, empty."""
        self._seats.pop(request).request = None
        if len(self._row) > 2 * len(self._seats) + SPARE:
            self._row = deque(seat for seat in self._row if seat.request is not None)

    def __iter__(self) -> Iterator[Request]:
        return (seat.request for seat in self._row if seat.request is not None)

    def __len__(self) -> int:
        return len(self._seats)


class Priority:
    """A heap of ranks, and the requests by rank."""

    def __init__(self, cache: KVCacheManager) -> None:
        self._ranks: list[tuple[int, ...]] = []
        self._waiting: dict[tuple[int, ...], Request] = {}

    def rank(self, request: Request) -> tuple[int, ...]:
        """By priority, then arrival."""
        return (request.priority, request.arrival)

    def push(self, request: Request) -> None:
        """Join in order of rank."""
        rank = self.rank(request)
        self._waiting[rank] = request
        heapq.heappush(self._ranks, rank)

    def push_front(self, request: Request) -> None:
        """By rank as well."""
        self.push(request)

    def peek(self) -> Request | None:
        """The smallest rank that still waits."""
        while self._ranks:
            if request := self._waiting.get(self._ranks[0]):
                return request
            heapq.heappop(self._ranks)
        return None

    def remove(self, request: Request) -> None:
        """Its rank stays in the heap until it comes up, or until most of them are such."""
        del self._waiting[self.rank(request)]
        if len(self._ranks) > 2 * len(self._waiting) + SPARE:
            self._ranks = sorted(self._waiting)

    def __len__(self) -> int:
        return len(self._waiting)


class LongestPrefixMatch(FCFS):
    """The longest cached prefix of those that wait longest."""

    WINDOW = 32
    MAX_SKIPS = 64

    def __init__(self, cache: KVCacheManager) -> None:
        super().__init__(cache)
        self._cache = cache
        self._skips = 0

    def peek(self) -> Request | None:
        """Of equals the one that waits longest."""
        first = super().peek()
        if first is None or self._skips >= self.MAX_SKIPS:
            return first
        window = list(islice(self, self.WINDOW))
        window.sort(key=lambda request: -self._cache.cached_tokens(request))
        return window[0]

    def remove(self, request: Request) -> None:
        """Count how often the first in line is passed over."""
        self._skips += 1
        if super().peek() is request:
            self._skips = 0
        super().remove(request)


POLICIES: dict[str, Callable[[KVCacheManager], SchedulingPolicy]] = {
    "fcfs": FCFS,
    "priority": Priority,
    "lpm": LongestPrefixMatch,
}
