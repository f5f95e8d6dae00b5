"""Tasks 6.1 and 6.2: which request is next, by arrival and by priority."""

import gc
import weakref
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from grader.kit import Fault, expect, expect_equal, note, quietly, run_machine, start_script, task
from grader.kit.growth import line_that_grows
from grader.kit.work import count_lines
from grader.suites.scheduler.queues import (
    LEFT,
    FCFSMachine,
    PriorityMachine,
    ToldCache,
    in_order,
    make_request,
    watched_queue,
)

FEW, MANY = 50, 500
INTEGERS = "A priority is any integer, and arrivals grow as long as the engine runs."
ONE_NUMBER = (
    "In one number made of both, a late arrival reaches into the next priority: rank by a tuple."
)
LATE = 10_000_000
"""An arrival of an engine that has run for days."""


def queue_of(part: Any, name: str, *priorities: int) -> tuple[Any, list[Any]]:
    """A queue that requests with these priorities have joined, and the requests."""
    queue = watched_queue(part, name)
    requests = with_priorities(enumerate(priorities))
    for request in requests:
        queue.push(request)
    return queue, requests


def with_priorities(ranks: Iterable[tuple[int, int]]) -> list[Any]:
    """Requests by (arrival, priority), told in one line."""
    pairs = list(ranks)
    if any(priority for _, priority in pairs):
        told = (f"{priority} of r{arrival}" for arrival, priority in pairs)
        note(f"priorities: {', '.join(told)}")
    return [make_request(arrival, priority, is_told=False) for arrival, priority in pairs]


def expect_no_scan(part: Any, name: str) -> None:
    """Joining, looking and leaving cost about the same in a queue of 50 and of 500."""

    def way(count: int) -> Callable[[], None]:
        queue = part.POLICIES[name](ToldCache())
        start_script()
        requests = [make_request(arrival, arrival % 3 - 1) for arrival in range(count)]

        def through_the_queue() -> None:
            for request in requests:
                queue.push(request)
                queue.peek()
                queue.remove(requests[0])
                queue.push_front(requests[0])
            for request in reversed(requests):
                queue.remove(request)
                queue.peek()

        return through_the_queue

    few, many = (count_lines(way(count)) / count for count in (FEW, MANY))
    start_script()
    if many > 3 * few + 8:
        line = line_that_grows(part, way(FEW), way(MANY))
        start_script()
        raise Fault(
            f"a request's way through the queue takes {few:.0f} lines of Python when {FEW} wait, and "
            f"{many:.0f} when {MANY} do",
            why="A scan: the queue is looked at in every step, however many wait, and any of them may "
            "be aborted. A call must go to its request by key or by halves, not through all that wait.",
            line=line,
        )


@task("6.1")
def test_first_come_first_served(part: ModuleType) -> None:
    """Requests leave in the order in which they came."""
    queue, _ = queue_of(part, "fcfs", 3, 1, 2)
    why = "FCFS knows no priority."
    expect_equal(in_order(queue), ["r0", "r1", "r2"], "the order in which they leave", why=why)


@task("6.1")
def test_peek_only_looks(part: ModuleType) -> None:
    """peek says which is next, None if none waits, and changes nothing."""
    queue, _ = queue_of(part, "fcfs")
    expect_equal(queue.peek(), None, "the next in an empty queue")
    queue.push(make_request(0))
    why = "The scheduler looks first, and takes the request out only once it has room for it."
    expect_equal([queue.peek().request_id, len(queue)], ["r0", 1], "the first look", why=why)
    expect_equal([queue.peek().request_id, len(queue)], ["r0", 1], "the second look", why=why)


@task("6.1")
def test_a_preempted_request_keeps_its_place(part: ModuleType) -> None:
    """A preempted request comes back at the front; of two, the one that was preempted last."""
    queue, (first, second, _) = queue_of(part, "fcfs", 0, 0, 0)
    queue.remove(first)
    queue.remove(second)
    queue.push_front(second)
    queue.push_front(first)
    why = (
        "push_front puts a request before all that are there: after push_front(r1) the order is r1, r2, "
        "and after push_front(r0) it is r0, r1, r2."
    )
    expect_equal(in_order(queue), ["r0", "r1", "r2"], "the order in which they leave", why=why)


@task("6.1")
def test_leave_from_anywhere(part: ModuleType) -> None:
    """A request that is aborted leaves the queue wherever it is."""
    for gone in range(4):
        start_script()
        queue, requests = queue_of(part, "fcfs", 0, 0, 0, 0)
        queue.remove(requests[gone])
        expect_equal(len(queue), 3, f"len(queue) without r{gone}", why=LEFT)
        left = [f"r{i}" for i in range(4) if i != gone]
        expect_equal(
            in_order(queue, requests[gone]), left, "the order in which the others leave", why=LEFT
        )


@task("6.1")
def test_rank_by_arrival(part: ModuleType) -> None:
    """Those that run rank by arrival: the last to come is preempted first."""
    queue, requests = queue_of(part, "fcfs", 2, 0, 1)
    youngest_first = list(reversed(requests))
    expect_equal(sorted(youngest_first, key=queue.rank), requests, "running requests in ascending rank",
                 why="FCFS knows no priority, and no two requests share an arrival.")  # fmt: skip


@task("6.1")
def test_rank_by_any_arrival(part: ModuleType) -> None:
    """Arrivals are numbers, which grow as long as the engine runs."""
    queue = watched_queue(part, "fcfs")
    requests = [make_request(arrival) for arrival in (2, 9, 10, 100, LATE, LATE + 1)]
    youngest_first = list(reversed(requests))
    ranked = sorted(youngest_first, key=queue.rank)
    why = "9 is before 10, and as texts it is not: compare arrivals as the integers that they are."
    expect_equal(ranked, requests, "running requests in ascending rank", why=why)


@task("6.1")
def test_a_preemption_is_no_matter_of_rank(part: ModuleType) -> None:
    """A request that was preempted and runs again has the rank that it had."""
    queue, (first, second) = queue_of(part, "fcfs", 0, 0)
    note("r1.num_preemptions = 1")
    second.num_preemptions = 1
    why = "The running requests are kept in order of rank; push_front is what keeps its place."
    expect(queue.rank(first) < queue.rank(second), "r1, preempted once, ranks before r0", why=why)


@task("6.1")
def test_fcfs_never_scans(part: ModuleType) -> None:
    """What a request costs the queue does not grow with the number that wait."""
    expect_no_scan(part, "fcfs")


@task("6.1")
def test_any_script_fcfs(part: ModuleType) -> None:
    """Whatever joins, leaves or comes back, the queue is the list in order of arrival."""
    run_machine(FCFSMachine, part, runs=60, steps=20)


@task("6.2")
def test_the_smallest_priority_is_next(part: ModuleType) -> None:
    """The smallest priority goes first, equals by arrival."""
    queue, _ = queue_of(part, "priority", 2, 0, 1, 0, -3)
    expect_equal(in_order(queue), ["r4", "r1", "r3", "r2", "r0"], "the order in which they leave",
                 why="A smaller number is more urgent, as with Unix's nice.")  # fmt: skip
    expect_equal(queue.peek(), None, "the next in an empty queue")


@task("6.2")
def test_rank_by_priority(part: ModuleType) -> None:
    """Those that run rank by priority, then arrival; no two share a rank."""
    queue, requests = queue_of(part, "priority", 1, 0, 1, -2)
    youngest_first = list(reversed(requests))
    ranked = sorted(youngest_first, key=queue.rank)
    expect_equal(
        [request.request_id for request in ranked], ["r3", "r1", "r0", "r2"],
        "running requests in ascending rank",
        why="The last in rank is preempted first: the least urgent, of equals the youngest.",
    )  # fmt: skip
    ranks = {queue.rank(request) for request in requests}
    expect_equal(len(ranks), 4, "different ranks of four requests",
                 why="With a shared rank it is not defined which of two is meant.")  # fmt: skip


@task("6.2")
def test_any_priority_and_any_arrival(part: ModuleType) -> None:
    """Priority decides, whatever the two arrivals are, and may be any integer."""
    queue = watched_queue(part, "priority")
    requests = with_priorities(
        (
            (LATE, -1000), (LATE + 1, -1000), (3, -21), (LATE + 2, 0), (2, 1), (5, 20), (4, 21),
            (1, 1000),
        )
    )  # fmt: skip
    why = of_ranks(quietly(queue), requests)
    youngest_first = list(reversed(requests))
    ranked = sorted(youngest_first, key=queue.rank)
    expect_equal(ranked, requests, "running requests in ascending rank", why=why)
    for request in youngest_first:
        queue.push(request)
    names = [request.request_id for request in requests]
    expect_equal(in_order(queue), names, "the order in which they leave", why=why)


def of_ranks(queue: Any, requests: list[Any]) -> str:
    """What is wrong with ranks. requests: in the right order."""
    ranks = [queue.rank(request) for request in requests]
    if not all(isinstance(rank, tuple) for rank in ranks) or len(ranks[0]) == 1:
        return f"{INTEGERS} {ONE_NUMBER}"
    alike = [
        (one, other, rank[0])
        for one, other, rank, after in zip(requests, requests[1:], ranks, ranks[1:], strict=False)
        if one.priority != other.priority and rank[0] == after[0]
    ]
    if not alike:
        return INTEGERS
    one, other, place = alike[0]
    return (
        f"{INTEGERS} Here priorities {one.priority} and {other.priority} have the same place in the "
        f"rank ({place}), so the arrival decides between them."
    )


@task("6.2")
def test_leave_a_priority_queue_from_anywhere(part: ModuleType) -> None:
    """A request that is aborted leaves the queue wherever it is, and does not come up again."""
    for gone in range(5):
        start_script()
        queue, requests = queue_of(part, "priority", 2, 0, 1, 0, -3)
        queue.remove(requests[gone])
        expect_equal(len(queue), 4, f"len(queue) without r{gone}", why=LEFT)
        left = [name for name in ("r4", "r1", "r3", "r2", "r0") if name != f"r{gone}"]
        expect_equal(
            in_order(queue, requests[gone]), left, "the order in which the others leave", why=LEFT
        )


@task("6.2")
def test_a_preempted_request_is_no_more_urgent_than_before(part: ModuleType) -> None:
    """A preempted request comes back before its equals, but behind those that are more urgent."""
    queue, (preempted, _, _) = queue_of(part, "priority", 1, 0, 1)
    queue.remove(preempted)
    queue.push_front(preempted)
    expect_equal(in_order(queue), ["r1", "r0", "r2"], "the order in which they leave",
                 why="To come back is no reason to overtake what is more urgent.")  # fmt: skip


@task("6.2")
def test_equals_come_back_in_order_of_arrival(part: ModuleType) -> None:
    """Of preempted equals the first to arrive is next, before an equal that has not run yet."""
    queue, (first, second, _) = queue_of(part, "priority", 1, 1, 1)
    for request in (first, second):
        queue.remove(request)
    for request in (second, first):
        request.num_preemptions = 1
        queue.push_front(request)
    why = "The last in rank is preempted first. Arrival decides among equals, also after a preemption."
    expect_equal(in_order(queue), ["r0", "r1", "r2"], "the order in which they leave", why=why)
    expect(queue.rank(first) < queue.rank(second), "r1 ranks before r0", why=why)


@task("6.2")
def test_a_preemption_is_no_matter_of_priority(part: ModuleType) -> None:
    """A request that was preempted has the rank that it had."""
    queue, (first, second) = queue_of(part, "priority", 1, 1)
    note("r1.num_preemptions = 1")
    second.num_preemptions = 1
    why = "The running requests are kept in order of rank, so a rank must not change."
    expect(queue.rank(first) < queue.rank(second), "r1, preempted once, ranks before r0", why=why)


@task("6.2")
def test_priority_never_scans(part: ModuleType) -> None:
    """What a request costs the queue grows at most with the logarithm of the number that wait."""
    expect_no_scan(part, "priority")


@task("6.2")
def test_who_has_left_is_forgotten(part: ModuleType) -> None:
    """A queue in which an urgent request stays does not keep all that came and went behind it."""
    queue = part.POLICIES["priority"](ToldCache())
    queue.push(make_request(0, -1))
    gone = []
    for arrival in range(1, 1001):
        request = make_request(arrival)
        queue.push(request)
        queue.remove(request)
        gone.append(weakref.ref(request))
    del request
    start_script()
    gc.collect()
    kept = sum(ref() is not None for ref in gone)
    expect(
        kept <= 500,
        f"{kept} of 1000 requests that have left the queue are still held by it",
        why="An entry that is only dropped when it comes up never is while a more urgent one waits: "
        "clear away when most entries are such.",
    )


@task("6.2")
def test_the_order_outlives_those_who_left(part: ModuleType) -> None:
    """After most of a long queue has left from the middle, the rest still goes in order."""
    queue = part.POLICIES["priority"](ToldCache())
    requests = [make_request(arrival, arrival * 83 % 300 + 1) for arrival in range(300)]
    start_script()
    for request in requests:
        queue.push(request)
    for request in requests:
        if request.priority % 4:
            queue.remove(request)
    left = sorted((request for request in requests if request.priority % 4 == 0), key=queue.rank)
    names = [request.request_id for request in left]
    expect_equal(in_order(queue), names, "the order in which the last 75 of 300 leave", why=LEFT)


@task("6.2")
def test_any_script_priority(part: ModuleType) -> None:
    """Whatever joins, leaves or comes back, the next is the smallest of all that wait."""
    run_machine(PriorityMachine, part, runs=60, steps=20)
