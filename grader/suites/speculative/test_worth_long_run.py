"""Task 18.7 beyond a few calls and drafts: nothing that is left behind, and no number out of reach."""

from random import Random
from typing import Any

from grader.kit import expect_equal, task
from grader.kit.apart import deep_calls
from grader.kit.memory import expect_keeps_nothing
from grader.suites.speculative.test_worth import REACH, Rate, flat, free, worth

MANY = 1100


class Right(Rate):
    """Drafts that are always right."""

    def __init__(self) -> None:
        super().__init__(1.0)

    def expected(self, num_drafts: int) -> float:
        return 1.0 + num_drafts


@task("18.7")
def test_an_acceptance_of_many_calls(part: Any) -> None:
    """Two running counts are all that an Acceptance keeps of its samples."""
    acceptance = part.Acceptance(0.9)
    expect_keeps_nothing(lambda: acceptance.add(1, 2), "add")
    expect_keeps_nothing(lambda: acceptance.rate, "rate")
    expect_keeps_nothing(lambda: acceptance.expected(3), "expected")
    fresh = Random(0)

    def anew() -> None:
        made = part.Acceptance(fresh.random())
        made.add(1, 3)
        for number in range(8):
            made.expected(number)

    expect_keeps_nothing(anew, "a new Acceptance, add and expected")


@task("18.7")
def test_choices_of_many_calls(part: Any) -> None:
    """A choice belongs to its step, and nothing is left behind."""
    offers = [(Rate(0.8), 3), (Rate(0.5), 2)]
    expect_keeps_nothing(lambda: part.most_worth(offers, 1, flat, free, 3), "most_worth")


@task("18.7")
def test_many_drafts_are_a_choice(part: Any) -> None:
    """Every number up to `most` is looked at, however many those are."""
    with deep_calls():
        got = worth(part, [(Right(), MANY)], 0, flat, free, MANY, "each draft brings a token")
    expect_equal(got, MANY, "the number of drafts", why=REACH)
