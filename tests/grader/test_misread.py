"""A mistake is told if it answers as the part does, and no other does."""

from grader.kit.misread import reading_of
from grader.kit.script import current_script, note, start_script

CASES = [(2,), (3,)]


def squared(number):
    return number * number


def test_the_reading_that_answers_all_cases_alike_is_told():
    readings = [("doubled", lambda n: 2 * n), ("squared", squared), ("one", lambda n: 1)]
    assert reading_of(squared, readings, CASES) == "squared"
    assert reading_of(squared, readings, CASES[:1]) == ""  # 2 * 2 fits as well
    assert reading_of(squared, [*readings[:1], *readings[2:]], CASES) == ""


def test_what_fails_decides_nothing():
    def fails(number):
        raise ValueError(number)

    assert reading_of(fails, [("squared", squared)], CASES) == ""
    assert reading_of(squared, [("fails", fails), ("squared", squared)], CASES) == "squared"


def test_the_script_of_the_failure_stays():
    start_script()
    note("a call")

    def noted(number):
        note("another")
        return squared(number)

    reading_of(noted, [("squared", squared)], CASES)
    assert current_script().lines == ["a call"]
