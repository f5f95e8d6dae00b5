"""Queues without `OrderedDict` and `heapq`: a linked list, a list kept in order, a list beside a queue.

Different from the reference: FCFS links its requests by hand; Priority keeps all that wait sorted and
finds any of them by halves, so that nothing is left lying about; longest prefix match has an FCFS queue
instead of being one, and counts skips against the request that was passed over.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator

from yaie.core.contracts import KVCacheManager, SchedulingPolicy
from yaie.core.request import Request


class FCFS:
    """Each request knows who stands before it and behind it; None stands for both ends."""

    def __init__(self, cache: KVCacheManager) -> None:
        self._before: dict[Request | None, Request | None] = {None: None}
        self._behind: dict[Request | None, Request | None] = {None: None}

    def rank(self, request: Request) -> tuple[int, ...]:
        """By arrival."""
        return (request.arrival,)

    def push(self, request: Request) -> None:
        """Join at the end."""
        self._link(self._before[None], request, None)

    def push_front(self, request: Request) -> None:
        """Join at the front."""
        self._link(None, request, self._behind[None])

    def _link(self, before: Request | None, request: Request, behind: Request | None) -> None:
        self._behind[before] = self._before[behind] = request
        self._before[request], self._behind[request] = before, behind

    def peek(self) -> Request | None:
        """The first in the queue."""
        return self._behind[None]

    def remove(self, request: Request) -> None:
        """Join the hands of the neighbours."""
        before, behind = self._before.pop(request), self._behind.pop(request)
        self._behind[before], self._before[behind] = behind, before

    def __iter__(self) -> Iterator[Request]:
        request = self._behind[None]
        while request is not None:
            yield request
            request = self._behind[request]

    def __len__(self) -> int:
        return len(self._before) - 1


class Priority:
    """All that wait, in order of rank."""

    def __init__(self, cache: KVCacheManager) -> None:
        self._ranks: list[tuple[int, ...]] = []
        self._by_rank: dict[tuple[int, ...], Request] = {}

    def rank(self, request: Request) -> tuple[int, ...]:
        """By priority, then arrival."""
        return request.priority, request.arrival

    def push(self, request: Request) -> None:
        """Join in order of rank."""
        insort(self._ranks, self.rank(request))
        self._by_rank[self.rank(request)] = request

    push_front = push

    def peek(self) -> Request | None:
        """The smallest rank."""
        return self._by_rank[self._ranks[0]] if self._ranks else None

    def remove(self, request: Request) -> None:
        """Found by halves."""
        del self._ranks[bisect_left(self._ranks, self.rank(request))]
        del self._by_rank[self.rank(request)]

    def __len__(self) -> int:
        return len(self._ranks)


class LongestPrefixMatch:
    """Looks at the first WINDOW of a queue."""

    WINDOW = 32
    MAX_SKIPS = 64

    def __init__(self, cache: KVCacheManager) -> None:
        self._queue = FCFS(cache)
        self._cache = cache
        self._passed_over: dict[Request, int] = {}

    def rank(self, request: Request) -> tuple[int, ...]:
        """By arrival."""
        return (request.arrival,)

    def push(self, request: Request) -> None:
        """Join at the end."""
        self._queue.push(request)

    def push_front(self, request: Request) -> None:
        """Join at the front."""
        self._queue.push_front(request)

    def peek(self) -> Request | None:
        """The longest prefix of the window; the first in line once it was passed over often enough."""
        first = self._queue.peek()
        if first is None or self._passed_over.get(first, 0) >= self.MAX_SKIPS:
            return first
        best, most = first, -1
        for _, request in zip(range(self.WINDOW), self._queue, strict=False):
            tokens = self._cache.cached_tokens(request)
            if tokens > most:
                best, most = request, tokens
        return best

    def remove(self, request: Request) -> None:
        """Whoever leaves from behind has passed over the first."""
        first = self._queue.peek()
        if first is not None and first is not request:
            self._passed_over[first] = self._passed_over.get(first, 0) + 1
        self._passed_over.pop(request, None)
        self._queue.remove(request)

    def __len__(self) -> int:
        return len(self._queue)


POLICIES: dict[str, Callable[[KVCacheManager], SchedulingPolicy]] = {
    "fcfs": FCFS,
    "priority": Priority,
    "lpm": LongestPrefixMatch,
}
