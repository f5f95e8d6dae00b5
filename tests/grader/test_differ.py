"""Of two long values a report shows where they differ, not both in full."""

from dataclasses import dataclass

import pytest
import torch

from grader.kit.differ import told_apart
from grader.kit.expect import Mismatch, expect_close

CHUNK = {"id": "cmpl-1", "choices": [{"index": 0, "delta": {"content": "a"}}], "model": "tutor"}


def test_short_values_are_shown_whole():
    assert told_apart([1, 2], [1, 3]) == ("", "[1, 2]", "[1, 3]")


def test_a_value_deep_in_json_is_named_by_its_path():
    got = {**CHUNK, "choices": [{"index": 0, "delta": {"content": "b"}}]}
    where, right, wrong = told_apart(CHUNK, got)
    assert where == "at ['choices'][0]['delta']['content']"
    assert (right, wrong) == ("'a'", "'b'")


def test_a_missing_key_is_named_and_not_the_rest():
    got = {**CHUNK, "choices": [{"index": 0, "delta": {}}]}
    where, right, wrong = told_apart(CHUNK, got)
    assert where == "at ['choices'][0]['delta']"
    assert (right, wrong) == ("... {'content': 'a'}", "none of the keys above")


def test_several_values_under_the_same_keys_are_shown_on_both_sides():
    right = {
        "prompt_tokens": 10,
        "completion_tokens": 0,
        "total_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    wrong = right | {"prompt_tokens": 0, "total_tokens": 0}
    assert told_apart(right, wrong) == (
        "",
        "... {'prompt_tokens': 10, 'total_tokens': 10}",
        "... {'prompt_tokens': 0, 'total_tokens': 0}",
    )
    where, *sides = told_apart({"usage": right}, {"usage": wrong})
    assert where == "at ['usage']"
    assert tuple(sides) == told_apart(right, wrong)[1:]


def test_long_texts_under_the_same_keys_are_shown_where_they_differ():
    right = dict.fromkeys("abcdefghijkl", "the engine answers every request " * 6)
    wrong = {key: text + "X" for key, text in right.items()}
    _, expected, got = told_apart(right, wrong)
    assert "X" not in expected
    assert got.count("X") == 8  # the first entries, not all
    assert got.endswith(", ...}")


def test_an_item_of_a_long_list_is_shown_with_its_neighbours():
    right, wrong = list(range(100)), [*range(57), 0, *range(58, 100)]
    where, expected, got = told_apart(right, wrong)
    assert where == "at [57]"
    assert expected == "[..., 55, 56, 57, 58, 59, ...], 57 at [57]"
    assert got == "[..., 55, 56, 0, 58, 59, ...], 0 at [57]"


def test_a_list_that_ends_too_early_says_both_lengths():
    _, expected, got = told_apart(list(range(100)), list(range(60)))
    assert expected == "[..., 58, 59, 60, 61, 62, ...], 100 items"
    assert got == "[..., 58, 59], 60 items"


def test_long_strings_show_the_first_character_that_differs():
    text = "the engine answers every request " * 4
    _, expected, got = told_apart(text, text[:70] + "X" + text[71:])
    assert len(expected) < 50
    assert "X" in got
    assert expected.startswith("...")


@pytest.mark.parametrize("length", [1, 30, 1000])
def test_two_texts_of_different_values_differ(length):
    """A value that `show` cuts off before its difference would be told as equal."""
    right, wrong = [0] * length + [1], [0] * length + [2]
    assert told_apart(right, wrong)[1] != told_apart(right, wrong)[2]
    nested, other = {"rows": [right, right]}, {"rows": [right, wrong]}
    assert told_apart(nested, other)[1] != told_apart(nested, other)[2]


def test_values_of_other_kinds_are_shown_as_they_are():
    assert told_apart(list(range(60)), None)[2] == "None"


def test_several_items_of_one_row_are_one_difference():
    where, right, wrong = told_apart([[1, 2, 3, 4] * 5, [5] * 9], [[1, 2, 3, 4] * 5, [6] * 9])
    assert where == "at [1]"
    assert (right, wrong) == ("[5, 5, 5, ...], 5 at [0]", "[6, 6, 6, ...], 6 at [0]")


@dataclass
class Pair:
    """What a part returns."""

    left: int
    right: list[int]
    count: int = 2


def test_objects_are_shown_by_the_fields_that_differ():
    assert told_apart(Pair(1, []), Pair(3, [])) == ("", "left=1", "left=3")
    assert told_apart(Pair(1, []), Pair(3, [4])) == ("", "left=1, right=[]", "left=3, right=[4]")
    one, other = list(range(60)), [*range(50), 0, *range(51, 60)]
    _, right, wrong = told_apart(Pair(1, one), Pair(1, other))
    assert right == "right[50]=[..., 48, 49, 50, 51, 52, ...], 50 at [50]"
    assert wrong == "right[50]=[..., 48, 49, 0, 51, 52, ...], 0 at [50]"


@pytest.mark.parametrize(
    ("off", "right", "wrong"), [(0.5, "0.25", "0.75"), (1e-9, "0.25", "0.250000001")]
)
def test_numbers_have_as_many_digits_as_tell_them_apart(off: float, right: str, wrong: str):
    expected = torch.tensor([0.25], dtype=torch.float64)
    with pytest.raises(Mismatch) as caught:
        expect_close(expected + off, expected, "out", rtol=0.0, atol=0.0)
    assert (caught.value.expected, caught.value.got) == (right, wrong)
