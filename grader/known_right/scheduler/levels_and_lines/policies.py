"""Queues of lines: a line for each priority, and a heap of the priorities that have one.

Lines are dictionaries in order of insertion, which Python keeps; of a line whose requests came in
another order than they arrived, the smallest arrival is found by a heap of its own. LPM remembers its
window.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

from yaie.core.contracts import KVCacheManager, SchedulingPolicy
from yaie.core.request import Request


@dataclass
class _Line:
    """Requests of one level by arrival. Removed ones stay in the heap until half of it is such."""

    heap: list[tuple[int, Request]] = field(default_factory=list)
    inside: set[Request] = field(default_factory=set)

    def push(self, place: int, request: Request) -> None:
        heapq.heappush(self.heap, (place, request))
        self.inside.add(request)

    def first(self) -> Request:
        return self.heap[0][1]

    def remove(self, request: Request) -> None:
        self.inside.remove(request)
        if len(self.heap) >= 2 * len(self.inside) + 16:
            self.heap = [entry for entry in self.heap if entry[1] in self.inside]
            heapq.heapify(self.heap)
        while self.heap and self.heap[0][1] not in self.inside:
            heapq.heappop(self.heap)


class Priority:
    """Levels, the smallest first."""

    __slots__ = ("_levels", "_lines", "_size")

    def __init__(self, cache: KVCacheManager) -> None:
        self._lines: dict[int, _Line] = {}
        self._levels: list[int] = []
        self._size = 0

    def rank(self, request: Request) -> tuple[int, int]:
        """Level and arrival."""
        return request.priority, request.arrival

    def push(self, request: Request) -> None:
        """To its line, by arrival."""
        level = request.priority
        if level not in self._lines:
            self._lines[level] = _Line()
            heapq.heappush(self._levels, level)
        self._lines[level].push(request.arrival, request)
        self._size += 1

    push_front = push

    def peek(self) -> Request | None:
        """The first of the first line that is not empty."""
        while self._levels and self._levels[0] not in self._lines:
            heapq.heappop(self._levels)
        return self._lines[self._levels[0]].first() if self._levels else None

    def remove(self, request: Request) -> None:
        """From its line; an empty line goes, its level when it comes up."""
        line = self._lines[request.priority]
        line.remove(request)
        self._size -= 1
        if not line.inside:
            del self._lines[request.priority]
            if len(self._levels) > 2 * len(self._lines) + 16:
                self._levels = sorted(self._lines)

    def __len__(self) -> int:
        return self._size


class FCFS:
    """A ring of pages: a request's page is known, so that it can leave from the middle."""

    PAGE = 16

    def __init__(self, cache: KVCacheManager) -> None:
        self._pages: dict[int, dict[Request, None]] = {}
        self._page_of: dict[Request, int] = {}
        self._first, self._last = 0, -1

    def rank(self, request: Request) -> tuple[int]:
        """Arrival."""
        return (request.arrival,)

    def push(self, request: Request) -> None:
        """To the last page."""
        page = self._pages.get(self._last)
        if page is None or len(page) >= self.PAGE or self._last < self._first:
            self._last += 1
            page = self._pages[self._last] = {}
        page[request] = None
        self._page_of[request] = self._last

    def push_front(self, request: Request) -> None:
        """A page of its own before the first."""
        self._first -= 1
        if self._last < self._first:
            self._last = self._first
        self._pages[self._first] = {request: None}
        self._page_of[request] = self._first

    def peek(self) -> Request | None:
        """The first of the first page with anything on it."""
        return next(iter(self.upto(1)), None)

    def upto(self, count: int) -> list[Request]:
        """The first `count`."""
        found: list[Request] = []
        number = self._first
        while number <= self._last and len(found) < count:
            found += self._pages.get(number, {})
            number += 1
        return found[:count]

    def remove(self, request: Request) -> None:
        """Off its page. Empty pages at the front are passed; emptied in the middle they are one step."""
        number = self._page_of.pop(request)
        page = self._pages[number]
        del page[request]
        if not page:
            del self._pages[number]
        if not self._pages:
            self._first, self._last = 0, -1
        elif 4 * len(self._pages) + 64 < self._last - self._first:
            self._renumber()
        while self._pages and self._first not in self._pages:
            self._first += 1

    def _renumber(self) -> None:
        pages = [self._pages[number] for number in sorted(self._pages)]
        self._pages = dict(enumerate(pages))
        self._page_of = {request: n for n, page in self._pages.items() for request in page}
        self._first, self._last = 0, len(pages) - 1

    def __len__(self) -> int:
        return len(self._page_of)


class LongestPrefixMatch(FCFS):
    """Cached prefixes among the first WINDOW."""

    WINDOW, MAX_SKIPS = 32, 64

    def __init__(self, cache: KVCacheManager) -> None:
        FCFS.__init__(self, cache)
        self._find, self._passes = cache.cached_tokens, 0

    def peek(self) -> Request | None:
        """The window in descending order of what is cached, stable."""
        if self._passes < self.MAX_SKIPS:
            window = sorted(self.upto(self.WINDOW), key=self._find, reverse=True)
            return window[0] if window else None
        return FCFS.peek(self)

    def remove(self, request: Request) -> None:
        """Who is first is asked before anyone leaves."""
        self._passes += 1
        if request is FCFS.peek(self):
            self._passes = 0
        FCFS.remove(self, request)


POLICIES: dict[str, Callable[[KVCacheManager], SchedulingPolicy]] = {
    "fcfs": FCFS,
    "priority": Priority,
    "lpm": LongestPrefixMatch,
}
