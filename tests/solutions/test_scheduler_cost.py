"""What a step costs: in proportion to what it computes, not to who waits or what is cached."""

import pytest

from grader.kit.cost import count_calls
from grader.kit.toy import Settings, Toy
from solutions.scheduler import POLICIES
from yaie.core.batch import StepPlan
from yaie.core.request import FinishReason


def engine(policy: str = "fcfs", **settings: int) -> Toy:
    roomy = {"num_blocks": 4000, "max_num_seqs": 64, "token_budget": 512}
    return Toy(Settings(policy=policy, **(roomy | settings)))  # type: ignore[arg-type]


def cost_of_step(toy: Toy) -> int:
    """Function calls of `schedule`, `advance` and `update`; the model says 0."""
    plans: list[StepPlan] = []
    cost = count_calls(lambda: plans.append(toy.scheduler.schedule()))
    cost += count_calls(lambda: toy.scheduler.advance(plans[0]))
    tokens = [[0] for item in plans[0].scheduled if item.samples]
    return cost + count_calls(lambda: toy.scheduler.update(plans[0], tokens))


def cost_of_steps(toy: Toy) -> int:
    """Of enough steps to fill a block twice."""
    return sum(cost_of_step(toy) for _ in range(2 * toy.settings.block_size))


def running(count: int, policy: str = "fcfs", **settings: int) -> Toy:
    """Requests in the midst of decoding."""
    toy = engine(policy, **settings)
    for i in range(count):
        toy.add([i % 5, i // 5, i], max_tokens=1000)
    toy.step()
    assert toy.scheduler.num_running == count
    return toy


@pytest.mark.parametrize("policy", POLICIES)
def test_cost_does_not_grow_with_the_number_that_wait(policy: str) -> None:
    def cost(num_waiting: int) -> int:
        toy = running(8, policy, max_num_seqs=8)
        for i in range(num_waiting):
            toy.add([4, i % 5, i, i], max_tokens=1000)
        return cost_of_steps(toy)

    assert cost(700) == cost(50)


@pytest.mark.parametrize("policy", POLICIES)
def test_cost_of_admitting_does_not_grow_with_the_number_that_wait(policy: str) -> None:
    def cost(num_waiting: int) -> int:
        toy = engine(policy, max_num_seqs=4)
        for i in range(num_waiting):
            toy.add([4, i % 5, i, i], max_tokens=1000)
        return count_calls(toy.scheduler.schedule)

    assert cost(700) <= cost(50) + 4


@pytest.mark.parametrize("policy", POLICIES)
def test_cost_of_waiting_for_room_does_not_grow_with_the_number_that_wait(policy: str) -> None:
    def cost(num_waiting: int) -> int:
        toy = running(4, policy, num_blocks=9)
        for i in range(num_waiting):
            toy.add([4] * 33 + [i], max_tokens=1)
        return count_calls(toy.scheduler.schedule)

    assert cost(700) == cost(50)


def test_cost_does_not_grow_with_what_is_cached() -> None:
    def cost(num_cached: int) -> int:
        toy = engine(token_budget=4 * num_cached + 64, max_num_seqs=num_cached)
        for i in range(num_cached):
            toy.add([4, 4, i, i])
        toy.step()
        assert toy.cache.stats()["cached_blocks"] == num_cached
        for i in range(8):
            toy.add([i % 5, i // 5, i], max_tokens=1000)
        toy.step()
        return cost_of_steps(toy)

    assert cost(300) == cost(10)


def test_cost_grows_at_most_in_step_with_the_number_that_run() -> None:
    few, many = cost_of_steps(running(8)), cost_of_steps(running(64))
    assert many <= 8 * few


def test_decode_costs_the_same_however_long_the_sequence() -> None:
    def cost(length: int) -> int:
        toy = engine(token_budget=2048)
        toy.add([1] * length, max_tokens=1000)
        toy.step()
        return cost_of_steps(toy)

    assert cost(2000) == cost(20)


def test_finishing_does_not_scan_those_that_run_or_wait() -> None:
    def cost(count: int) -> int:
        toy = running(8, max_num_seqs=8)
        for i in range(count):
            toy.add([4, i % 5, i, i], max_tokens=1000)
        victims = [toy.requests[3], toy.requests[-1]]
        return count_calls(lambda: [toy.scheduler.finish(r, FinishReason.ABORT) for r in victims])

    assert cost(700) <= cost(50)
