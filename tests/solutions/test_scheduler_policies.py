"""FCFS, priority and longest prefix match: who is next, and that nobody waits for ever."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grader.kit.toy import Settings, Toy
from solutions.scheduler import POLICIES
from tests.solutions.properties import effort
from yaie.core.contracts import SchedulingPolicy
from yaie.core.params import SamplingParams
from yaie.core.request import Request, RequestStatus

A = [0, 1, 2, 3] * 6
B = [4, 3, 2, 1] * 6


def requests(*priorities: int) -> list[Request]:
    return [
        Request(f"r{i}", [1], SamplingParams(), arrival=i, priority=priority)
        for i, priority in enumerate(priorities)
    ]


def queue(name: str) -> SchedulingPolicy:
    return POLICIES[name](Toy().cache)


def drain(policy: SchedulingPolicy) -> list[str]:
    order = []
    while (request := policy.peek()) is not None:
        policy.remove(request)
        order.append(request.request_id)
    assert len(policy) == 0
    return order


def test_fcfs_serves_in_order_of_arrival() -> None:
    policy = queue("fcfs")
    for request in requests(3, 1, 2):
        policy.push(request)
    assert drain(policy) == ["r0", "r1", "r2"]


def test_fcfs_takes_a_preempted_request_back_at_the_front() -> None:
    policy = queue("fcfs")
    first, second, third = requests(0, 0, 0)
    policy.push(third)
    policy.push_front(second)
    policy.push_front(first)
    assert drain(policy) == ["r0", "r1", "r2"]


def test_priority_serves_the_smallest_and_equals_by_arrival() -> None:
    policy = queue("priority")
    for request in requests(2, 0, 1, 0, -3):
        policy.push(request)
    assert drain(policy) == ["r4", "r1", "r3", "r2", "r0"]


def test_priority_takes_a_preempted_request_back_before_its_equals_only() -> None:
    policy = queue("priority")
    preempted, urgent, equal = requests(1, 0, 1)
    policy.push(equal)
    policy.push(urgent)
    policy.push_front(preempted)
    assert drain(policy) == ["r1", "r0", "r2"]


def test_longest_prefix_match_serves_what_is_cached_first() -> None:
    toy = Toy(Settings(policy="lpm", max_num_seqs=1, num_blocks=30))
    toy.add(A[:12])
    toy.run()
    toy.add(B[:6])
    toy.add([*A[:4], 4])
    toy.add([*A[:8], 4])
    served = []
    while toy.alive:
        served += [item.request.request_id for item in toy.step().scheduled]
    assert served == ["r3", "r2", "r1"]


def test_longest_prefix_match_serves_equals_by_arrival() -> None:
    toy = Toy(Settings(policy="lpm", max_num_seqs=1))
    for i in range(3):
        toy.add([i, i])
    served = [toy.step().scheduled[0].request.request_id for _ in range(3)]
    assert served == ["r0", "r1", "r2"]


@pytest.mark.parametrize("name", POLICIES)
def test_empty_queue_has_no_next(name: str) -> None:
    policy = queue(name)
    assert policy.peek() is None
    assert len(policy) == 0


@pytest.mark.parametrize("name", POLICIES)
def test_removed_request_is_forgotten_wherever_it_stood(name: str) -> None:
    for gone in range(4):
        policy, waiting = queue(name), requests(0, 0, 0, 0)
        for request in waiting:
            policy.push(request)
        policy.remove(waiting[gone])
        assert len(policy) == 3
        assert drain(policy) == [f"r{i}" for i in range(4) if i != gone]


@pytest.mark.parametrize("name", ["fcfs", "priority"])
@effort(100)
@given(script=st.lists(st.tuples(st.sampled_from("push peek remove".split()), st.integers(0, 9))))
def test_queue_is_a_sorted_list_that_never_scans(name: str, script: list[tuple[str, int]]) -> None:
    policy, waiting = queue(name), list[Request]()
    arrivals = iter(requests(*[number % 3 for _, number in script]))
    for action, number in script:
        if action == "push":
            waiting.append(next(arrivals))
            policy.push(waiting[-1])
        elif action == "remove" and waiting:
            policy.remove(waiting.pop(number % len(waiting)))
        assert policy.peek() is min(waiting, key=policy.rank, default=None)
        assert len(policy) == len(waiting)


def steps_until_it_runs(toy: Toy, request: Request, arrive: Callable[[], object]) -> int:
    """Something new arrives in every step."""
    for step in range(500):
        if request.status is not RequestStatus.WAITING:
            return step
        arrive()
        toy.step()
    raise AssertionError("it waits for ever")


def test_longest_prefix_match_passes_nobody_over_for_ever() -> None:
    toy = Toy(Settings(policy="lpm", max_num_seqs=1, num_blocks=30))
    toy.add(A[:12])
    toy.run()
    (unlucky,) = toy.add(B[:6])
    waited = steps_until_it_runs(toy, unlucky, lambda: toy.add([*A[:8], 4]))
    assert 10 < waited < 100


def test_longest_prefix_match_lets_a_large_request_through_a_stream_of_small_ones() -> None:
    """Until there is room for it, no other request may take that room."""
    toy = Toy(Settings(policy="lpm", max_num_seqs=3, num_blocks=8))
    toy.add(A[:5])
    toy.run()
    (large,) = toy.add(B[:24], max_tokens=2)
    assert steps_until_it_runs(toy, large, lambda: toy.add([*A[:4], 4], max_tokens=3)) < 200


def test_fcfs_lets_a_large_request_through_a_stream_of_small_ones() -> None:
    toy = Toy(Settings(max_num_seqs=3, num_blocks=7))
    (small,) = toy.add(A[:5], max_tokens=6)
    toy.step()
    (large,) = toy.add(B[:24], max_tokens=2)
    assert steps_until_it_runs(toy, large, lambda: toy.add([4, 4], max_tokens=3)) < 10
    assert small.is_finished
