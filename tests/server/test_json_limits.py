"""JSON is counted before it is parsed, without a look at single bytes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yaie.server import json_limits
from yaie.server.json_limits import (
    MAX_DEPTH,
    MAX_NAMES,
    MAX_TOKEN_IDS,
    MAX_VALUES,
    Counts,
    refusal,
    too_many,
)


def nest(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


@pytest.mark.parametrize(
    ("content", "deep"),
    [
        (nest(MAX_DEPTH), False),
        (nest(MAX_DEPTH + 1), True),
        (b'{"a":' * MAX_DEPTH + b"1" + b"}" * MAX_DEPTH, False),
        (b"[" + b"[[1],{}]," * 1000 + b"0]", False),  # many, but flat
        (b'["' + b"[" * 1000 + b'"]', False),  # brackets in a string
        (b'["' + b'\\"[' * 1000 + b'"]', False),  # behind escaped quotes
        (b'["\\\\",' + nest(MAX_DEPTH) + b"]", True),  # behind an escaped backslash
        (b'["\\\\\\"' + b"[" * 1000 + b'"]', False),
        (b"{}" * 1000, False),
        (b'"' + b'\\"' * 100_000 + b"[" * 1000, False),  # a string that does not end
        (b'["' + b"\\" * 131_071 + b'"' + b"[" * 1000 + b'"]', False),  # over the ends of pieces
        (b'["' + b"\\" * 131_072 + b'",' + nest(MAX_DEPTH) + b"]", True),
    ],
)
def test_depth_is_counted_outside_of_strings(content: bytes, deep: bool) -> None:
    assert ("nested" in (too_many([content]) or "")) is deep


def counts_of(text: str) -> tuple[int, int, int]:
    """The deepest level, commas and colons, one character after the other."""
    deepest = depth = commas = colons = 0
    quoted = escaped = False
    for character in text:
        if escaped:
            escaped = False
        elif quoted and character == "\\":
            escaped = True
        elif character == '"':
            quoted = not quoted
        elif not quoted:
            depth += (character in "[{") - (character in "]}")
            deepest = max(deepest, depth)
            commas += character == ","
            colons += character == ":"
    return deepest, commas, colons


NESTED = st.recursive(
    st.text('[]{}"\\a,:', max_size=6) | st.integers(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('"[\\', max_size=3), inner),
    max_leaves=30,
)


@given(NESTED, st.integers(1, 40))
def test_counts_are_those_of_counting_one_character_after_the_other(value: Any, piece: int) -> None:
    """Wherever a piece ends: in a string, on a quote, behind a backslash, between two brackets."""
    text, counts = json.dumps(value), Counts()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_limits, "_PIECE", piece)
        for _ in json_limits._counted(text.encode(), counts):
            pass
    assert (counts.depth, counts.values, counts.names) == counts_of(text)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"[" + b"1," * MAX_VALUES + b"1]", None),
        (b"[" + b"1," * (MAX_VALUES + 1) + b"1]", f"more than {MAX_VALUES} values"),
        (b'"' + b"1," * (MAX_VALUES + 1) + b'"', None),
        (b"{" + b'"a":' * MAX_NAMES + b"}", None),
        (b"{" + b'"a":' * (MAX_NAMES + 1) + b"}", f"more than {MAX_NAMES} fields"),
        (b'{"prompt": "' + b'a:\\"' * (MAX_NAMES + 1) + b'"}', None),
        (b"[" * 10_000, "nested too deeply"),
        (b"", None),
        (b"\xef\xbb\xbf{}", None),
        ('{"prompt": "\U0001f600"}'.encode() * 10_000, None),  # over the ends of pieces
        ('{"prompt": "abc"}'.encode("utf-16"), "not in UTF-8 (it is UTF-16)"),
        ('{"prompt": "abc"}'.encode("utf-16-be"), "not in UTF-8 (it is UTF-16-BE)"),
        ('{"prompt": "abc"}'.encode("utf-32-le"), "not in UTF-8 (it is UTF-32-LE)"),
        (b" " * 70_000 + b"\xff", "byte 70000"),
        (b" " * 65_535 + b"\xf0\x9f" + b" " * 9, "byte 65535"),
        (b'{"prompt": "\xed\xa0\x80"}', "byte 12"),  # half of a surrogate pair
        (b"{} \xf0\x9f", "byte 3"),
    ],
)
def test_a_body_is_refused_before_it_is_read(body: bytes, words: str | None) -> None:
    found = refusal(body)
    assert found is None if words is None else words in (found or "")


def test_where_prompts_are_token_ids_there_may_be_more() -> None:
    assert refusal(b"[" + b"1," * MAX_TOKEN_IDS + b"1]", MAX_TOKEN_IDS) is None
    assert refusal(b"[" + b"1," * (MAX_TOKEN_IDS + 1) + b"1]", MAX_TOKEN_IDS) is not None


def test_several_texts_are_counted_together() -> None:
    half = b"[" + b"1," * (MAX_VALUES // 2 + 1) + b"1]"
    assert too_many([half]) is None
    assert too_many([half, half]) is not None


def test_counting_stops_as_soon_as_there_is_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    unescaped = json_limits._unescaped

    def noted(text: bytes) -> Any:
        for piece in unescaped(text):
            seen.append(len(piece))
            yield piece

    monkeypatch.setattr(json_limits, "_unescaped", noted)
    assert too_many([b"1," * 5_000_000]) is not None
    assert len(seen) == 3  # of 153 pieces
    seen.clear()
    assert too_many([b'{"prompt": "' + b"x" * 5_000_000 + b'"}']) is None
    assert seen == []  # what is below the bounds at a glance is not looked at again
