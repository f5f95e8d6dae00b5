"""A paragraph on a mistake is told where that mistake alone gives what the part gave."""

import torch

from grader.kit.layout import Reading
from grader.kit.mistakes import lost_digits, rounded_input, told_by

X = torch.tensor([0.1, 0.7, 3.3])


def test_the_mistake_that_gives_the_result_is_told() -> None:
    assert told_by(X + 1, {"one more": X + 1, "twice": X * 2}) == "one more"
    assert told_by([3, 1], {"sorted": [1, 3], "backwards": [3, 1]}) == "backwards"


def test_nan_is_what_another_nan_is() -> None:
    nan = torch.tensor([0.0, torch.nan])
    assert told_by(nan, {"nothing divided by nothing": nan.clone()}) != ""


def test_no_mistake_or_several_tell_nothing() -> None:
    assert told_by(X, {"one more": X + 1}) == ""
    assert told_by(X * 2, {"twice": X * 2, "added to itself": X + X}) == ""
    assert told_by("no tensor", {"twice": X * 2}) == ""


def test_lost_digits_are_told_with_how_much_is_lost() -> None:
    assert lost_digits(X.bfloat16(), X).startswith("by at most 0.")


def test_other_numbers_have_lost_more_than_digits() -> None:
    assert lost_digits(X * 1.1, X) == ""
    assert lost_digits(X[:2], X) == ""
    assert lost_digits(X * torch.nan, X) == ""


def test_a_rounded_input_is_named_if_it_gives_the_result() -> None:
    y = torch.tensor([1.7, -0.3, 0.9])
    reading = Reading(lambda x, y: x.double() * y.double(), {"x": X, "y": y})
    told = rounded_input(X * y.bfloat16().float(), reading, tolerance=1e-6)
    assert told == "This comes out if y is rounded to bfloat16, which keeps 8 bits."
    assert rounded_input(X * y * 2, reading, tolerance=1e-6) == ""
