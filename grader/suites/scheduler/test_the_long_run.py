"""Beyond a few calls on a few requests: crowds, long prompts, results that stay, nothing left behind."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from grader.kit import Mismatch, expect_equal, note, start_script, task
from grader.kit.memory import expect_keeps_nothing
from grader.kit.standing import BUFFER
from grader.kit.toy import PLAIN, Settings, Toy
from grader.kit.toy_words import tell_share
from grader.suites.scheduler.bench import A, cached
from grader.suites.scheduler.parts import graded
from grader.suites.scheduler.queues import ToldCache
from solutions.paged_cache import BlockManager, KVCacheManager
from solutions.scheduler import POLICIES
from yaie.core.request import FinishReason, Request

MANY = 1200
"""Requests of one step: more than a test would write down one by one."""
LONG = 300
"""Tokens of a prompt: more than the 256 of which Python keeps one object each."""
CROWD = (
    "A step has as many requests as max_num_seqs and the budget allow: each of them has its turn."
)
DEEP = "Python's calls go about a thousand deep: what goes through requests one by one is a loop."
VALUES = (
    "Two counts are equal when their values are: ask with ==. `is` asks whether they are one object, "
    "which Python promises of no number, and keeps for small ones alone."
)


def engine(part: Any, most: int = 4) -> Any:
    """A scheduler on the reference's cache and queue, without a script: what is written down is kept."""
    cache = KVCacheManager(BlockManager(2 * most, 4), None)
    queue = POLICIES["fcfs"](cache)
    return part.Scheduler(cache, queue, max_num_seqs=most, token_budget=4 * most)


def arrive(scheduler: Any, arrival: int) -> Request:
    request = Request(f"r{arrival}", [1], PLAIN, arrival=arrival, max_tokens=9)
    scheduler.add(request)
    return request


def step(scheduler: Any) -> Any:
    """What update returned: each request that samples draws token 7."""
    plan = scheduler.schedule()
    scheduler.advance(plan)
    return scheduler.update(plan, [[7] for item in plan.scheduled if item.samples])


def expect_lives_leave_nothing(part: Any) -> None:
    """A part that fails in such a life is other tests' matter."""
    scheduler, arrivals = engine(part), count()

    def live() -> None:
        request = arrive(scheduler, next(arrivals))
        step(scheduler)
        step(scheduler)
        scheduler.finish(request, FinishReason.STOP)
        scheduler.finish(request, FinishReason.STOP)

    try:
        live()
    except NotImplementedError:
        raise
    except Exception:  # noqa: BLE001, a part may raise anything
        return
    expect_keeps_nothing(live, "a request that is added, steps twice and is finished")


def expect_queue_keeps_nothing(part: Any, policy: str) -> None:
    """Of requests that came, were looked at, preempted and left."""
    queue, arrivals = part.POLICIES[policy](ToldCache()), count()

    def wait() -> None:
        arrival = next(arrivals)
        request = Request(f"r{arrival}", [1], PLAIN, arrival=arrival, max_tokens=1)
        for join in (queue.push, queue.push_front):
            join(request)
            queue.rank(request)
            queue.peek()
            queue.remove(request)

    expect_keeps_nothing(wait, "a request that waits twice and leaves")


@task("6.1")
def test_who_left_is_forgotten(part: Any) -> None:
    """Of a request that has left, first come or preempted, the queue keeps nothing."""
    expect_queue_keeps_nothing(part, "fcfs")


@task("6.2")
def test_who_left_is_forgotten_by_priority(part: Any) -> None:
    """Of a request that has left, whatever its priority, the queue keeps nothing."""
    expect_queue_keeps_nothing(part, "priority")


@graded("6.3")
def test_who_left_is_forgotten_by_prefix(part: Any) -> None:
    """Of a request that has left, whatever its prefix, the queue keeps nothing."""
    expect_queue_keeps_nothing(part, "lpm")


@contextmanager
def unlike_a_short_one() -> Iterator[None]:
    """Whatever fails here holds for a prompt of a few tokens: only the numbers are others."""
    try:
        yield
    except Mismatch as error:
        error.why = f"With a prompt of a few tokens this goes well. {VALUES}"
        raise


def prompt_of(length: int) -> list[int]:
    return [A[i % len(A)] for i in range(length)]


def shares_of(part: Any, length: int, budget: int) -> list[list[str]]:
    """Those of the steps for a prompt."""
    toy = Toy(Settings(num_blocks=100, token_budget=budget), part)
    toy.add(prompt_of(length), max_tokens=2)
    steps = -(-length // budget)
    return [[tell_share(item) for item in toy.step().scheduled] for _ in range(steps)]


@graded("6.4")
def test_a_long_prompt_samples(part: Any) -> None:
    """A prompt of 300 tokens samples with its last one, whole or in chunks."""
    if shares_of(part, 10, 10) != [["r0: tokens 0..9, samples"]]:
        return  # other tests say why
    with unlike_a_short_one():
        got = [*shares_of(part, LONG, LONG), *shares_of(part, LONG, LONG - 1)]
    wanted = [["r0: tokens 0..299, samples"], ["r0: tokens 0..298"], ["r0: token 299, samples"]]
    expect_equal(got, wanted, f"the shares with a budget of {LONG}, and of {LONG - 1}", why=VALUES)


@graded("6.4")
def test_a_crowd_goes_on(part: Any) -> None:
    """Of any number of requests that run, each that the budget has a token for gets it."""
    start_script()
    note(f"{MANY} requests run, and the budget has room for all")
    scheduler = engine(part, MANY)
    for arrival in range(MANY):
        arrive(scheduler, arrival)
    step(scheduler)
    expect_equal(scheduler.num_running, MANY, "num_running after the first step", why=CROWD)
    got = len(scheduler.schedule().scheduled)
    expect_equal(got, MANY, "how many have a share in the second step", why=CROWD)


@graded("6.4")
def test_plans_leave_nothing_behind(part: Any) -> None:
    """Of the plans for a request that is over, schedule keeps nothing."""
    expect_lives_leave_nothing(part)


@graded("6.6")
def test_a_crowd_is_let_in(part: Any) -> None:
    """Any number of requests that have room are let in by one step."""
    start_script()
    note(f"{MANY} requests wait, and there is room for all")
    scheduler = engine(part, MANY)
    for arrival in range(MANY):
        arrive(scheduler, arrival)
    try:
        got = len(scheduler.schedule().scheduled)
    except RecursionError:
        raise Mismatch(f"schedule calls itself for each of {MANY} requests", why=DEEP) from None
    expect_equal(got, MANY, "how many have a share in the first step", why=CROWD)


@graded("6.8")
def test_a_crowd_gets_its_results(part: Any) -> None:
    """Each of any number of requests in a plan is moved on by advance, and gets its token by update."""
    start_script()
    note(f"{MANY} requests have one token each, and are in one plan")
    scheduler = engine(part, MANY)
    requests = [arrive(scheduler, arrival) for arrival in range(MANY)]
    plan = scheduler.schedule()
    scheduler.advance(plan)
    got = sum(request.num_in_flight == 1 for request in requests)
    expect_equal(got, MANY, "how many have a token in flight after advance", why=CROWD)
    gained = scheduler.update(plan, [[7]] * MANY)
    expect_equal(len(gained), MANY, "how many requests update returned", why=CROWD)
    got = sum(request.token_ids == [1, 7] for request in requests)
    expect_equal(got, MANY, "how many have the token that was drawn for them", why=CROWD)


def cached_of(part: Any, length: int) -> int:
    """How much of a prompt is cached after two steps, of which the second has its last token."""
    toy = Toy(Settings(num_blocks=100, token_budget=length - 1), part)
    toy.add(prompt_of(length), max_tokens=9)
    toy.step()
    toy.step()
    return cached(toy, prompt_of(length))


@graded("6.8")
def test_the_end_of_a_long_prompt_is_shared(part: Any) -> None:
    """The last token of a prompt is filed with it, however long that is."""
    if cached_of(part, 12) != 12:
        return  # other tests say why
    what = f"cached tokens after the step that ends a prompt of {LONG}"
    with unlike_a_short_one():
        got = cached_of(part, LONG)
    expect_equal(got, LONG, what, why=VALUES)


@graded("6.8")
def test_what_update_returned_stays(part: Any) -> None:
    """The requests of one step are no list that the next step fills."""
    start_script()
    note("r0 and r1 take a step; r0 is finished; r1 takes another")
    scheduler = engine(part)
    first, second = (arrive(scheduler, arrival) for arrival in range(2))
    gained = step(scheduler)
    expect_equal(gained, [first, second], "what the first update returned")
    scheduler.finish(first, FinishReason.STOP)
    step(scheduler)
    what = "what the first update had returned, after the second"
    expect_equal(gained, [first, second], what, why=BUFFER)


@graded("6.8")
def test_results_leave_nothing_behind(part: Any) -> None:
    """Of the results of a request that is over, advance and update keep nothing."""
    expect_lives_leave_nothing(part)


@graded("6.9")
def test_ends_leave_nothing_behind(part: Any) -> None:
    """Of a request that is over, finish keeps nothing."""
    expect_lives_leave_nothing(part)
