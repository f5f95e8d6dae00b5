"""The queue that scans a list, sibling of every policy, and random scripts on both."""

from collections.abc import Callable, Iterable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from grader.kit import Machine, expect, note, quietly, watch
from grader.kit.toy import PLAIN
from grader.kit.toy_words import NamedRequest
from solutions.paged_cache import BlockManager, KVCacheManager
from yaie.core.request import Request

WINDOW = 32
"""How far `LongestPrefixMatch` looks, as its stub says."""

LEFT = "A request that has left the queue, to run or for good, must not come up again; the others must."


class CountedRequest(NamedRequest):
    """Counts as a step of Python when it is compared or hashed, to make a scan or a copy show."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self) >> 4

    def __lt__(self, other: object) -> bool:
        raise TypeError(
            f"{self} < {other}: two entries of the heap share a rank, so the requests themselves are "
            "compared; with the arrival in its rank no two requests share one"
        )


def make_request(
    arrival: int, priority: int = 0, length: int = 1, *, is_told: bool = True
) -> Request:
    """r3 has arrived after r2. length: of the prompt. is_told: the script says its priority."""
    if priority and is_told:
        note(f"r{arrival} has priority {priority}")
    return CountedRequest(
        f"r{arrival}",
        [1] * length,
        PLAIN,
        arrival=arrival,
        priority=priority,
        max_tokens=1,
    )


class ToldCache(KVCacheManager):
    """A cache that says what it is told to. asked: how often."""

    def __init__(self) -> None:
        super().__init__(BlockManager(1, 4), None)
        self.tokens: dict[str, int] = {}
        self.asked = 0

    def tell(self, request: Request, tokens: int) -> None:
        """From now on so many tokens of the request are cached."""
        note(f"{tokens} tokens of {request.request_id} are cached")
        self.tokens[request.request_id] = tokens

    def cached_tokens(self, request: Request) -> int:
        self.asked += 1
        return self.tokens.get(request.request_id, 0)


def watched_queue(part: Any, name: str, cache: Any = None) -> Any:
    """The policy under test; its calls are written down."""
    return watch(part.POLICIES[name](cache or ToldCache()), "queue", describe)


def describe(queue: Any) -> str:
    return f"{len(queue)} in the queue"


def in_order(queue: Any, gone: Request | None = None) -> list[str]:
    """The next one, again and again, until none is left. gone: one that has left already."""
    names = []
    for _ in range(len(queue) + 1):  # one too many, to notice a queue that never ends
        if (request := queue.peek()) is None:
            expect(
                len(queue) == 0,
                f"peek finds no request to go next, though len(queue) is {len(queue)}",
                why="While any request waits, one of them is next. None is for a queue without one.",
            )
            break
        expect(request is not gone, f"{request.request_id} has left, and is next again", why=LEFT)
        names.append(request.request_id)
        queue.remove(request)
    return names


class ListQueue:
    """The next is found by looking at all that wait."""

    def __init__(self, choose: Callable[[list[Request]], Request]) -> None:
        self.waiting: list[Request] = []
        self._choose = choose

    def peek(self) -> Request | None:
        return self._choose(self.waiting) if self.waiting else None


def by_priority(waiting: Iterable[Request]) -> Request:
    return min(waiting, key=lambda request: (request.priority, request.arrival))


class QueueMachine(Machine):
    """A queue as a scheduler uses it: from the head to running, back to the front, aborted anywhere."""

    task: str
    policy: str
    why = "First come, first served: the one that arrived first is next."

    def choose(self, waiting: list[Request]) -> Request:
        return waiting[0]

    @initialize()
    def start(self) -> None:
        self.cache = ToldCache()
        self.queue = watched_queue(self.part, self.policy, self.cache)
        self.quiet = quietly(self.queue)
        self.sibling = ListQueue(self.choose)
        self.running: list[Request] = []
        self.arrived = 0

    @rule(number=st.integers(0, 3))
    def push(self, number: int) -> None:
        request = self.arrive(number)
        self.arrived += 1
        self.queue.push(request)
        self.sibling.waiting.append(request)

    def arrive(self, number: int) -> Request:
        return make_request(self.arrived)

    @precondition(lambda self: self.sibling.waiting)
    @rule()
    def admit(self) -> None:
        """The head is let in."""
        request = self.sibling.peek()
        assert request is not None
        self.running.append(request)
        self.take(request)

    @precondition(lambda self: self.sibling.waiting)
    @rule(index=st.integers(0, 9))
    def abort(self, index: int) -> None:
        self.take(self.sibling.waiting[index % len(self.sibling.waiting)])

    def take(self, request: Request) -> None:
        self.queue.remove(request)
        self.sibling.waiting.remove(request)

    @precondition(lambda self: self.may_preempt())
    @rule()
    def preempt(self) -> None:
        """The one that runs with the highest rank comes back."""
        victim = max(self.running, key=self.quiet.rank)
        self.running.remove(victim)
        victim.num_preemptions += 1
        self.queue.push_front(victim)
        self.sibling.waiting.insert(0, victim)

    def may_preempt(self) -> bool:
        return bool(self.running)

    @invariant()
    def the_next_is_the_same(self) -> None:
        if hasattr(self, "queue"):
            got, expected = self.quiet.peek(), self.sibling.peek()
            name = expected.request_id if expected else None
            self.claim(
                self.task, got.request_id if got else None, name, "the next in the queue", self.why
            )
            self.claim(self.task, len(self.quiet), len(self.sibling.waiting), "len(queue)", LEFT)


class FCFSMachine(QueueMachine):
    task = "6.1"
    policy = "fcfs"
    grades = frozenset({"6.1"})


class PriorityMachine(QueueMachine):
    task = "6.2"
    policy = "priority"
    grades = frozenset({"6.2"})
    why = "The smallest priority is next, and of equals the one that arrived first."

    def choose(self, waiting: list[Request]) -> Request:
        return by_priority(waiting)

    def arrive(self, number: int) -> Request:
        return make_request(self.arrived, number - 1)


class PrefixMachine(QueueMachine):
    """Few enough leave that the first in line is never passed over for the last time."""

    task = "6.3"
    policy = "lpm"
    grades = frozenset({"6.3"})
    why = "The longest cached prefix is next, and of equals the one that waits longest."

    def choose(self, waiting: list[Request]) -> Request:
        return max(waiting[:WINDOW], key=lambda request: self.cache.cached_tokens(request))

    def arrive(self, number: int) -> Request:
        request = make_request(self.arrived)
        self.cache.tell(request, 4 * number)
        return request

    @precondition(lambda self: self.sibling.waiting)
    @rule(index=st.integers(0, 9), number=st.integers(0, 3))
    def cached(self, index: int, number: int) -> None:
        """A prefix was computed, or evicted."""
        self.cache.tell(self.sibling.waiting[index % len(self.sibling.waiting)], 4 * number)

    def may_preempt(self) -> bool:
        """Which of several that came back stands first, the contract does not say."""
        back = any(request.num_preemptions for request in self.sibling.waiting)
        return bool(self.running) and not back
