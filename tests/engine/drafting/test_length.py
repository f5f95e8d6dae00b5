"""How many drafts are taken follows from how often they are right and what steps have cost."""

import random

import pytest

from solutions.speculative import Acceptance, most_worth
from yaie.engine.drafting.length import StepCosts


def acceptance(rate: float) -> Acceptance:
    known = Acceptance()
    for _ in range(200):
        known.add(round(100 * rate), 100)
    return known


def worth(offers: list[tuple[Acceptance, int]], others: int, step: StepCosts, most: int) -> int:
    """Of drafts that cost nothing to make."""
    return most_worth(offers, others, step.seconds, lambda _: 0.0, most)


def costs(**seconds: float) -> StepCosts:
    """Of steps of so many tokens: _1=1.0, _8=2.0."""
    known = StepCosts()
    for size, time in seconds.items():
        for _ in range(5):
            known.add(int(size[1:]), time)
    return known


@pytest.mark.parametrize("rate", [0.2, 0.5, 0.9])
def test_rate_is_learnt_and_old_drafts_count_less(rate: float) -> None:
    known, rng = acceptance(0.99), random.Random(0)
    for _ in range(400):
        known.add(int(rng.random() < rate), 1)
    assert known.rate == pytest.approx(rate, abs=0.15)


@pytest.mark.parametrize(("rate", "number"), [(0.5, 3), (0.9, 5), (0.1, 1)])
def test_expected_tokens_are_those_of_a_simulation(rate: float, number: int) -> None:
    rng, total = random.Random(0), 0
    for _ in range(20_000):
        total += 1
        for _ in range(number):
            if rng.random() >= rate:
                break
            total += 1
    assert acceptance(rate).expected(number) == pytest.approx(total / 20_000, rel=0.02)


def test_a_size_counts_after_three_steps_and_by_their_median() -> None:
    known = StepCosts()
    assert known.seconds(4) == 1.0
    known.add(4, 0.5)
    known.add(4, 9.0)
    assert known.seconds(4) == 1.0
    known.add(4, 0.7)
    assert known.seconds(4) == 0.7


def test_between_two_sizes_lies_a_line_which_goes_on_behind_the_last_and_never_falls() -> None:
    known = costs(_2=1.0, _8=4.0)
    assert [known.seconds(size) for size in (1, 2, 5, 8, 100)] == [0.5, 1.0, 2.5, 4.0, 50.0]
    assert costs(_2=1.0, _8=0.4).seconds(100) == 0.4


def test_what_was_not_tried_looks_cheap() -> None:
    assert costs(_2=1.0).seconds(100) == 1.0


def test_what_was_measured_long_ago_is_measured_again() -> None:
    known = costs(_1=1.0, _4=3.0)
    for _ in range(3):
        known.forget()
    assert known.seconds(4) == 1.0


def test_free_verification_takes_all_and_dear_none() -> None:
    offer = [(acceptance(0.5), 8)]
    assert worth(offer, 0, costs(_1=1.0, _8=1.0), 8) == 8
    assert worth(offer, 0, costs(_1=1.0, _2=2.0, _4=4.0, _8=8.0), 8) == 0


def test_number_lies_where_another_draft_costs_what_it_brings() -> None:
    # Each further token costs a tenth of a step: 1, 1.5, 1.75, 1.875 tokens in 1.0, 1.1, 1.2, 1.3.
    step = costs(_1=1.0, _2=1.1, _3=1.2, _4=1.3, _6=1.5, _8=1.7, _12=2.1)
    assert worth([(acceptance(0.5), 8)], 0, step, 8) == 2
    assert worth([(acceptance(0.95), 8)], 0, step, 8) == 8
    assert worth([(acceptance(0.02), 8)], 0, step, 8) == 0


def test_many_requests_want_fewer_drafts_where_tokens_cost() -> None:
    # Free up to 8 tokens, then as many seconds as tokens: a device whose arithmetic is used up.
    step = costs(_1=1.0, _8=1.0, _16=2.0, _32=4.0, _64=8.0, _128=16.0)
    few, many = ([(acceptance(0.5), 8)] * count for count in (1, 16))
    assert worth(few, 0, step, 8) > worth(many, 0, step, 8) == 0
