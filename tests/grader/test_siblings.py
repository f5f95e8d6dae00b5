"""Of several mistakes, one is told only if it alone gives what a part gave."""

import pytest

torch = pytest.importorskip("torch")

from grader.kit import Mismatch, expect  # noqa: E402
from grader.kit.siblings import fitting, telling  # noqa: E402

RIGHT = torch.tensor([1.0, 2.0, 3.0])
DOUBLED = ("It is doubled.", lambda: 2 * RIGHT)
SHIFTED = ("It is shifted.", lambda: RIGHT + 1)


def test_the_mistake_that_gives_the_values_is_told():
    assert fitting(2 * RIGHT, RIGHT, [SHIFTED, DOUBLED]) == "It is doubled."


def test_nothing_is_told_where_no_mistake_fits_or_two_do():
    assert fitting(5 * RIGHT, RIGHT, [SHIFTED, DOUBLED]) == ""
    again = ("It is added to itself.", lambda: RIGHT + RIGHT)
    assert fitting(2 * RIGHT, RIGHT, [DOUBLED, again]) == ""
    assert fitting(2 * RIGHT, RIGHT, [DOUBLED, DOUBLED]) == "It is doubled."


def test_values_that_are_missing_must_be_missing_in_the_mistake_too():
    nan = torch.tensor([float("nan"), 2.0, 3.0])
    lost = ("The first is never written.", lambda: nan)
    assert fitting(nan, RIGHT, [DOUBLED, lost]) == "The first is never written."


def test_a_mistake_that_cannot_be_computed_is_left_out():
    broken = ("It is broken.", lambda: RIGHT.view(7))
    assert fitting(2 * RIGHT, RIGHT, [broken, DOUBLED]) == "It is doubled."


def test_a_check_keeps_its_own_words_where_there_are_no_better_ones():
    for words, why in (("It is doubled.", "It is doubled."), ("", "Either.")):
        with pytest.raises(Mismatch) as raised, telling(lambda words=words: words):
            expect(False, "1 is not 2", why="Either.")
        assert raised.value.why == why
