"""The input of a custom tool is read out of the JSON of its call, however that is cut into pieces."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yaie.server.dialects.custom_input import InputReader


def read(*pieces: str) -> str:
    reader = InputReader()
    return "".join([*map(reader.push, pieces), reader.end()])


def cut(text: str, places: list[int]) -> list[str]:
    ends = sorted({0, len(text), *(place % (len(text) + 1) for place in places)})
    return [text[start:end] for start, end in pairwise(ends)]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"input": "a\\nb"}', "a\nb"),
        (' { "input" : "" } ', ""),
        ('{"a": [1, {"input": "x"}], "b": -1.5e3 , "input": "y"}', "y"),
        ('{"inp\\u0075t": "key with an escape"}', "key with an escape"),
        ('{"input": "first", "input": "second"}', "first"),
        (r'{"input": "\"\\\/\b\f\n\r\t"}', '"\\/\b\f\n\r\t'),
        (r'{"input": "\ud83d\ude42"}', "🙂"),
    ],
)
def test_the_string_is_the_input(arguments: str, text: str) -> None:
    assert read(arguments) == read(*arguments) == text


@pytest.mark.parametrize(
    "arguments",
    ["", "5", "[]", "{}", '{"input": 5}', '{"input": {"input": "x"}}', '{"patch": "x"}', "*** Begin",
     '{"inp', '{"a" 1}', '{5: "x"}', "null", '"input"', '{"input"'],
)  # fmt: skip
def test_what_is_no_object_with_such_a_string_is_the_input_itself(arguments: str) -> None:
    assert read(arguments) == read(*arguments) == arguments


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"input": "half a pat', "half a pat"),
        ('{"input": "an escape\\', "an escape"),
        ('{"input": "an escape\\u00', "an escape"),
        ('{"input": "half a pair\\ud83d', "half a pair\ufffd"),
        ('{"input": "', ""),
    ],
)
def test_of_a_call_that_was_cut_the_input_is_what_is_there(arguments: str, text: str) -> None:
    assert read(arguments) == read(*arguments) == text


@pytest.mark.parametrize(
    ("inside", "text"),
    [
        (r"\ud83d", "\ufffd"),
        (r"\ude42\ud83d", "\ufffd\ufffd"),
        (r"\ud83d\ud83d\ude42", "\ufffd🙂"),
        (r"\ud83dx\ude42", "\ufffdx\ufffd"),
        (r"\ud83d\n", "\ufffd\n"),
        (r"\u12zz", r"\u12zz"),
        ("a\nb", "a\nb"),
    ],
)
def test_what_is_no_text_or_no_json_is_read_all_the_same(inside: str, text: str) -> None:
    arguments = f'{{"input": "{inside}"}}'
    assert read(arguments) == read(*arguments) == text
    text.encode()


def test_text_is_told_as_soon_as_it_is_there() -> None:
    reader = InputReader()
    assert reader.push('{"input": "*** Be') == "*** Be"
    assert reader.push("gin\\") == "gin"
    assert reader.push('n"') == "\n"
    assert reader.push(', "more": "x"}') == ""
    assert reader.end() == ""


@given(st.text(), st.booleans(), st.lists(st.integers(0, 400)))
def test_any_text_comes_back_from_any_pieces(text: str, ascii_: bool, places: list[int]) -> None:
    arguments = json.dumps({"before": text, "input": text}, ensure_ascii=ascii_)
    assert read(*cut(arguments, places)) == text


@given(
    st.text('{}[]":,\\ud83e0 inputnl', max_size=40),
    st.sampled_from(["", "{", '{"input": "', '{"input":', '{"a":']),
    st.lists(st.integers(0, 80)),
)
def test_any_characters_are_read_alike_in_any_pieces(
    noise: str, start: str, places: list[int]
) -> None:
    assert read(*cut(start + noise, places)) == read(start + noise)
