"""What a step of the scheduler costs grows with the requests that it runs, and with nothing else."""

from collections.abc import Callable
from functools import partial
from typing import Any

from grader.kit import task
from grader.kit.growth import expect_growth
from grader.kit.toy import PLAIN
from grader.suites.scheduler.parts import graded
from solutions.paged_cache import BlockManager, KVCacheManager
from solutions.radix_tree import RadixTree
from solutions.scheduler import POLICIES
from yaie.core.request import FinishReason, Request

SIZE = 4
QUEUE = (
    "A server under load has thousands of waiting requests, and asks this in every step: a heap, a "
    "dict in order, a window of fixed size, but no walk through all that wait."
)
STEP = (
    "The scheduler runs between two steps of the model, which waits for it. It looks at the requests of "
    "the batch and at the head of the queue."
)
LENGTH = (
    "Where a request stands are a few numbers in it: no list of its tokens is copied or searched."
)


def request(arrival: int, length: int = 6) -> Request:
    """Its prompt begins as no other's."""
    prompt = [arrival, *range(length - 1)]
    return Request(f"r{arrival}", prompt, PLAIN, arrival=arrival, max_tokens=1_000)


@task("6.1")
def test_a_queue_of_any_length_is_as_quick(part: Any) -> None:
    """First come, first served: no call looks through the queue."""
    queues_are_quick(part, "fcfs")


@task("6.2")
def test_a_queue_by_priority_is_as_quick(part: Any) -> None:
    """By priority: a call costs a logarithm of those that wait."""
    queues_are_quick(part, "priority")


def queues_are_quick(part: Any, policy: str) -> None:
    """Each call, beside any number of others in the queue."""

    def queue_of(n: int) -> tuple[Any, list[Request]]:
        queue = part.POLICIES[policy](KVCacheManager(BlockManager(4, SIZE), None))
        waiting = [request(arrival) for arrival in range(n)]
        for one in waiting:
            queue.push(one)
        queue.remove(waiting[1])  # a heap that removes lazily has an entry to pass over
        return queue, waiting

    calls: dict[str, Callable[[Any, list[Request]], Callable[[], Any]]] = {
        "push": lambda queue, waiting: partial(queue.push, request(len(waiting) + 1)),
        "push_front": lambda queue, waiting: partial(queue.push_front, waiting[1]),
        "peek": lambda queue, waiting: queue.peek,
        "remove": lambda queue, waiting: partial(queue.remove, waiting[len(waiting) // 2]),
        "len": lambda queue, waiting: partial(len, queue),
    }
    if policy == "fcfs":  # by priority, a list in order may be cut where it likes
        calls["remove of the first"] = lambda queue, waiting: partial(queue.remove, waiting[0])
        calls["peek behind the first"] = lambda queue, waiting: (
            queue.remove(waiting[0]) or queue.peek
        )
    for name, call in calls.items():
        expect_growth(
            part,
            f"{name} of {policy!r}",
            "waiting requests",
            lambda n, call=call: call(*queue_of(n)),  # type: ignore[misc]
            why=QUEUE,
        )


class Busy:
    """A scheduler whose requests have computed their prompts, with others that wait behind them."""

    def __init__(
        self, part: Any, running: int = 4, waiting: int = 0, length: int = 6, **more: Any
    ) -> None:
        blocks = running * (length // SIZE + 40) + 40
        cache = KVCacheManager(BlockManager(blocks, SIZE), RadixTree(SIZE))
        self.scheduler = part.Scheduler(
            cache, POLICIES["fcfs"](cache), max_num_seqs=running + more.get("seats", 0),
            token_budget=running * length + 8,
        )  # fmt: skip
        self.requests = [request(arrival, length) for arrival in range(running + waiting)]
        for one in self.requests[:running]:
            self.scheduler.add(one)
        for _ in range(2):
            self.take(self.begin())
        for one in self.requests[running:]:
            self.scheduler.add(one)

    def begin(self) -> Any:
        """A plan that is on its way."""
        plan = self.scheduler.schedule()
        self.scheduler.advance(plan)
        return plan

    def take(self, plan: Any) -> None:
        self.scheduler.update(plan, self.samples(plan))

    def samples(self, plan: Any) -> list[list[int]]:
        """A token for each request that draws one."""
        return [[9] for item in plan.scheduled if item.samples]


def in_any_engine(
    part: Any, what: str, call: Callable[[Busy], Callable[[], Any]], running: float = 1
) -> None:
    """The same whatever waits, and at any length. call: of a scheduler. running: the exponent that the
    number of those that run may have."""
    for quantity, exponent, why, make, size in (
        ("running requests", running, STEP, lambda n: call(Busy(part, running=n)), 24),
        ("waiting requests", 0, QUEUE, lambda n: call(Busy(part, waiting=n)), 64),
        ("tokens of each running request", 0, LENGTH, lambda n: call(Busy(part, length=n)), 64),
    ):
        expect_growth(part, what, quantity, make, size=size, exponent=exponent, why=why)


@graded("6.4")
def test_a_step_costs_those_that_run(part: Any) -> None:
    """schedule looks at the running requests, and not at their tokens."""
    # 2: some keep them in order by insertion.
    in_any_engine(part, "schedule, with a full batch", lambda busy: busy.scheduler.schedule, 2)


@graded("6.6")
def test_a_step_lets_in_whom_there_is_room_for(part: Any) -> None:
    """schedule looks at those that it lets in, and at the one behind them."""
    for quantity, make in (
        ("waiting requests", lambda n: Busy(part, waiting=n, seats=2).scheduler.schedule),
        ("requests that are let in", lambda n: Busy(part, waiting=n, seats=n).scheduler.schedule),
    ):
        exponent = int(quantity != "waiting requests")
        expect_growth(
            part, "schedule, with free seats", quantity, make, size=32, exponent=exponent, why=QUEUE
        )


@graded("6.8")
def test_a_result_costs_those_that_ran(part: Any) -> None:
    """advance and update cost what the plan's requests cost."""

    def advance(busy: Busy) -> Callable[[], Any]:
        return partial(busy.scheduler.advance, busy.scheduler.schedule())

    def update(busy: Busy) -> Callable[[], Any]:
        plan = busy.begin()
        return partial(busy.scheduler.update, plan, busy.samples(plan))

    in_any_engine(part, "advance", advance)
    in_any_engine(part, "update", update)


@graded("6.9")
def test_an_end_does_not_look_at_the_queue(part: Any) -> None:
    """finish costs the same whatever waits, for one that runs and for one that waits."""
    for what, index in (("that runs", 0), ("that waits", -20)):
        expect_growth(
            part, f"finish of a request {what}", "waiting requests",
            lambda n, index=index: (  # type: ignore[misc]
                lambda busy: partial(busy.scheduler.finish, busy.requests[index], FinishReason.ABORT)
            )(Busy(part, waiting=n)),
            why=QUEUE,
        )  # fmt: skip
