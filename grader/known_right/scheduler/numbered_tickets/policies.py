"""Queues of numbered tickets: a request's place is a number, and numbers may be below zero.

Every policy is the same queue of tickets with another key. First come, first served counts upwards at
the end and downwards at the front; by priority a ticket is the rank; the longest prefix is chosen among
tickets.
"""

import heapq
from collections.abc import Callable, Iterator
from itertools import islice

from yaie.core.contracts import KVCacheManager, SchedulingPolicy
from yaie.core.request import Request

Ticket = tuple[int, ...]


class _Tickets:
    """A heap of (ticket, request), and the ticket of each that waits."""

    def __init__(self) -> None:
        self._held: dict[Request, Ticket] = {}
        self._heap: list[tuple[Ticket, int, Request]] = []
        self._serial = 0

    def put(self, ticket: Ticket, request: Request) -> None:
        self._held[request] = ticket
        self._serial += 1
        heapq.heappush(self._heap, (ticket, self._serial, request))

    def drop(self, request: Request) -> None:
        del self._held[request]
        if len(self._heap) > 2 * len(self._held) + 32:
            live = {id(entry[2]): entry for entry in self._heap if self._is_valid(entry)}
            self._heap = sorted(live.values(), key=lambda entry: entry[:2])

    def _is_valid(self, entry: tuple[Ticket, int, Request]) -> bool:
        return self._held.get(entry[2]) == entry[0]

    def first(self) -> Request | None:
        while self._heap and not self._is_valid(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][2] if self._heap else None

    def __len__(self) -> int:
        return len(self._held)


class _Queue:
    """What all policies do alike. `_ticket` says where a request stands."""

    def __init__(self, cache: KVCacheManager) -> None:
        self._tickets = _Tickets()
        self._ends = [0, 0]  # the smallest and the largest number that was given

    def rank(self, request: Request) -> tuple[int, ...]:
        """By arrival."""
        return (request.arrival,)

    def push(self, request: Request) -> None:
        """At the end."""
        self._ends[1] += 1
        self._tickets.put(self._ticket(request, self._ends[1]), request)

    def push_front(self, request: Request) -> None:
        """At the front."""
        self._ends[0] -= 1
        self._tickets.put(self._ticket(request, self._ends[0]), request)

    def _ticket(self, request: Request, number: int) -> Ticket:
        return (number,)

    def peek(self) -> Request | None:
        """The smallest ticket."""
        return self._tickets.first()

    def remove(self, request: Request) -> None:
        """From anywhere."""
        self._tickets.drop(request)

    def __len__(self) -> int:
        return len(self._tickets)


class FCFS(_Queue):
    """First come, first served."""


class Priority(_Queue):
    """By rank."""

    def rank(self, request: Request) -> tuple[int, ...]:
        """Priority, then arrival."""
        return (request.priority, request.arrival)

    def _ticket(self, request: Request, number: int) -> Ticket:
        return self.rank(request)


class LongestPrefixMatch:
    """A line in the order of a dictionary, of which a front part is looked at."""

    WINDOW = 32
    MAX_SKIPS = 64

    def __init__(self, cache: KVCacheManager) -> None:
        self._cache = cache
        self._back: dict[Request, None] = {}  # new ones, in order
        self._front: dict[Request, None] = {}  # those that came back, the last one first in line
        self._num_passed = 0

    def rank(self, request: Request) -> tuple[int, ...]:
        """By arrival."""
        return (request.arrival,)

    def push(self, request: Request) -> None:
        """Join at the end."""
        self._back[request] = None

    def push_front(self, request: Request) -> None:
        """Join at the front."""
        self._front[request] = None

    def _line(self) -> Iterator[Request]:
        yield from reversed(self._front)
        yield from self._back

    def peek(self) -> Request | None:
        """The longest cached prefix among those that wait longest."""
        first = next(self._line(), None)
        if first is not None and self._num_passed >= self.MAX_SKIPS:
            return first
        best, longest = None, -1
        for request in islice(self._line(), self.WINDOW):
            found = self._cache.cached_tokens(request)
            if found > longest:
                best, longest = request, found
        return best

    def remove(self, request: Request) -> None:
        """Leave; the first in line was passed over if it was another."""
        first = next(self._line(), None)
        self._num_passed = 0 if first is request else self._num_passed + 1
        del (self._front if request in self._front else self._back)[request]

    def __len__(self) -> int:
        return len(self._front) + len(self._back)


POLICIES: dict[str, Callable[[KVCacheManager], SchedulingPolicy]] = {
    "fcfs": FCFS,
    "priority": Priority,
    "lpm": lambda cache: LongestPrefixMatch(cache),
}
