"""Task 6.3: the longest cached prefix first, and none without end the last."""

from types import ModuleType
from typing import Any

from grader.kit import expect, expect_equal, note, quietly, run_machine, start_script
from grader.kit.work import count_lines
from grader.suites.scheduler.parts import graded
from grader.suites.scheduler.queues import (
    WINDOW,
    PrefixMachine,
    ToldCache,
    in_order,
    make_request,
    watched_queue,
)

MAX_SKIPS = 64
MOST_TOLD = 8
"""Of more requests the pushes are one line of the script."""


def prefix_queue(part: Any, *cached: int) -> tuple[Any, list[Any], ToldCache]:
    """Requests of which so many tokens are cached."""
    cache = ToldCache()
    queue = watched_queue(part, "lpm", cache)
    requests = [make_request(arrival) for arrival in range(len(cached))]
    is_crowd = len(requests) > MOST_TOLD
    if is_crowd:
        note(f"queue.push(r0), queue.push(r1), ..., queue.push(r{len(requests) - 1})")
    for request, tokens in zip(requests, cached, strict=True):
        if tokens:
            cache.tell(request, tokens)
        (quietly(queue) if is_crowd else queue).push(request)
    return queue, requests, cache


def next_one(queue: Any) -> str | None:
    request = queue.peek()
    return request.request_id if request else None


@graded("6.3")
def test_the_longest_cached_prefix_is_next(part: ModuleType) -> None:
    """The longest cached prefix goes first; of equals the one that waits longest."""
    queue, _, _ = prefix_queue(part, 0, 4, 8, 8, 0)
    lengths = {"r0": 0, "r1": 4, "r2": 8, "r3": 8, "r4": 0}
    order = in_order(queue)
    is_by_length = [lengths[name] for name in order] == sorted(lengths.values(), reverse=True)
    why = (
        "What is cached now may be evicted soon; there is no reason to go before an equal."
        if is_by_length
        else f"Cached are: {', '.join(f'{n} tokens of {name}' for name, n in lengths.items())}."
    )
    expect_equal(order, ["r2", "r3", "r1", "r0", "r4"], "the order of leaving", why=why)
    expect_equal(queue.peek(), None, "the next in an empty queue")


@graded("6.3")
def test_the_cache_is_asked_when_it_matters(part: ModuleType) -> None:
    """What counts is what is cached now, not when a request came."""
    queue, requests, cache = prefix_queue(part, 8, 4)
    cache.tell(requests[0], 0)
    cache.tell(requests[1], 12)
    expect_equal(next_one(queue), "r1", "the next once the cache has changed",
                 why="Prefixes are computed and evicted while requests wait.")  # fmt: skip


@graded("6.3")
def test_the_longest_and_not_the_largest_part(part: ModuleType) -> None:
    """What counts is how many tokens are cached, however long the rest of the prompt is."""
    cache = ToldCache()
    queue = watched_queue(part, "lpm", cache)
    for arrival, (length, tokens) in enumerate(((8, 4), (40, 16))):
        note(f"r{arrival} has a prompt of {length} tokens")
        request = make_request(arrival, length=length)
        cache.tell(request, tokens)
        queue.push(request)
    why = "16 tokens spare more work than 4, though 4 are half of r0's prompt."
    expect_equal(next_one(queue), "r1", "the next", why=why)


@graded("6.3")
def test_only_a_window_is_looked_at(part: ModuleType) -> None:
    """Only the WINDOW = 32 that wait longest are compared, however many wait."""
    queue, requests, cache = prefix_queue(part, *[0] * (WINDOW + 8))
    cache.tell(requests[WINDOW], 8)
    why = "Each look costs a walk through the tree; a window bounds what a step costs."
    expect_equal(next_one(queue), "r0", "the next if only the 33rd has a prefix", why=why)
    cache.asked = 0
    queue.peek()
    expect(cache.asked <= WINDOW, f"one peek asks the cache {cache.asked} times", why=why)
    cache.tell(requests[WINDOW - 1], 4)
    expect_equal(next_one(queue), "r31", "the next if the 32nd has a prefix too", why=why)
    queue.remove(requests[3])
    expect_equal(next_one(queue), "r32", "the next when the 33rd has moved up", why=why)


@graded("6.3")
def test_looking_never_scans(part: ModuleType) -> None:
    """What a look costs does not grow with the number that wait."""

    def cost(count: int) -> int:
        queue = part.POLICIES["lpm"](ToldCache())
        start_script()
        for arrival in range(count):
            queue.push(make_request(arrival))
        return count_lines(queue.peek)

    few, many = cost(100), cost(1600)
    start_script()
    expect(
        many <= 2 * few,
        f"a peek takes {few} lines of Python when 100 wait, and {many} when 1600 do",
        why="Take the WINDOW from the front of the queue without making a list of all that wait.",
    )


@graded("6.3")
def test_a_look_is_no_skip(part: ModuleType) -> None:
    """Only a request that leaves the queue has passed over the first; peek counts nothing."""
    queue, _, _ = prefix_queue(part, 0, 8)
    for _ in range(2 * MAX_SKIPS):
        queue.peek()
    start_script()
    why = "The scheduler peeks in every step, though there may be no room for anybody."
    expect_equal(next_one(queue), "r1", "the next after 128 looks, when none left", why=why)


def pass_over(queue: Any, cache: ToldCache, times: int, arrival: int) -> None:
    """So many requests with a long prefix come and go."""
    for number in range(arrival, arrival + times):
        request = make_request(number)
        cache.tell(request, 8)
        queue.push(request)
        queue.remove(request)


@graded("6.3")
def test_no_request_is_passed_over_without_end(part: ModuleType) -> None:
    """The first in line goes next, whatever is cached, after MAX_SKIPS = 64 others went before it."""
    queue, _, cache = prefix_queue(part, 0, 0)
    pass_over(queue, cache, MAX_SKIPS - 1, 100)
    lucky = make_request(900)
    cache.tell(lucky, 8)
    queue.push(lucky)
    why = "Under a stream of requests with a longer prefix, one without would wait for ever."
    expect_equal(next_one(queue), "r900", "the next after 63 went before r0", why=why)
    queue.remove(lucky)
    queue.push(lucky)
    expect_equal(next_one(queue), "r0", "the next after 64 went before r0", why=why)


@graded("6.3")
def test_the_turn_of_the_first_stays(part: ModuleType) -> None:
    """Once it is the turn of the first in line, it stays so however many others leave."""
    queue, _, cache = prefix_queue(part, 0, 0)
    pass_over(queue, cache, MAX_SKIPS + 3, 100)
    lucky = make_request(900)
    cache.tell(lucky, 8)
    queue.push(lucky)
    why = (
        "While r0 has no room yet, others are aborted, and the count goes beyond MAX_SKIPS. If it is "
        "r0's turn at exactly 64 only, the turn is missed, and does not come again."
    )
    expect_equal(next_one(queue), "r0", "the next after 67 went before r0", why=why)


@graded("6.3")
def test_the_count_starts_anew(part: ModuleType) -> None:
    """When the first in line has gone, the next one has not been passed over yet."""
    queue, (first, _, _), cache = prefix_queue(part, 0, 0, 0)
    pass_over(queue, cache, MAX_SKIPS, 100)
    queue.remove(first)
    pass_over(queue, cache, MAX_SKIPS - 1, 200)
    lucky = make_request(900)
    cache.tell(lucky, 8)
    queue.push(lucky)
    why = "A count that is not reset to zero turns the policy into FCFS for good."
    expect_equal(
        next_one(queue), "r900", "the next after 63 went before r1, the new first", why=why
    )


@graded("6.3")
def test_any_script_longest_prefix(part: ModuleType) -> None:
    """Whatever joins, leaves, comes back or is cached, the next is the longest prefix that waits."""
    run_machine(PrefixMachine, part, runs=60, steps=20)
