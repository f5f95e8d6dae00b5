"""Large bodies are parsed by another parser than small ones, and nobody can tell."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import from_json

from tests.server.conftest import LiveServer
from tests.server.test_bad_input import JSON
from yaie.server import large_json
from yaie.server.limits import LARGE

CHAT, TEXT, TOKENS = "/v1/chat/completions", "/v1/completions", "/tokenize"
ODD = {
    "plain": b'{"prompt": "abc"}',
    "twice the same name": b'{"prompt": 5, "n": 1, "prompt": "abc"}',
    "not a number": b'{"prompt": "abc", "temperature": NaN}',
    "infinite": b'{"prompt": "abc", "temperature": -Infinity}',
    "beyond a float": b'{"prompt": "abc", "temperature": 1e400}',
    "minus zero": b'{"prompt": "abc", "temperature": -0}',
    "an integer of 5,000 digits": b'{"prompt": "abc", "seed": %s}' % (b"9" * 5000),
    "an integer of 4,000 digits": b'{"prompt": "abc", "seed": %s}' % (b"9" * 4000),
    "half a pair, escaped": b'{"prompt": "\\ud800"}',
    "half a pair, raw": b'{"prompt": "\xed\xa0\x80"}',
    "a pair": b'{"prompt": "\\ud83d\\ude00"}',
    "no UTF-8": b'{"prompt": "\xff"}',
    "UTF-16": '{"prompt": "abc"}'.encode("utf-16-le"),
    "a byte order mark": b'\xef\xbb\xbf{"prompt": "abc"}',
    "zero": b'{"prompt": "a\\u0000b"}',
    "a control character": b'{"prompt": "a\x01b"}',
    "deep": b'{"prompt": "abc", "logit_bias": %s}' % (b"[" * 250 + b"]" * 250),
    "two values": b'{"prompt": "abc"} {}',
    "a comma too many": b'{"prompt": "abc",}',
    "single quotes": b"{'prompt': 'abc'}",
    "Python's words": b'{"prompt": "abc", "stream": True}',
    "cut off": b'{"prompt": "abc"',
    "a zero in front": b'{"prompt": "abc", "n": 01}',
    "no object": b"[1, 2]",
    "an unknown field": b'{"prompt": "abc", "promt": 1}',
}


def padded(content: bytes) -> bytes:
    """The same JSON, as a large body."""
    space = " ".encode("utf-16-le") if b"\0" in content[:4] else b" "
    return content + space * (LARGE + 1)


def said(server: LiveServer, path: str, content: bytes) -> Any:
    response = server.http.post(path, content=content, headers=JSON)
    answer = response.json()
    for volatile in ("id", "created"):
        answer.pop(volatile, None)
    return response.status_code, answer


@pytest.mark.parametrize("content", ODD.values(), ids=ODD)
def test_whatever_is_odd_in_a_large_body_is_answered_as_by_pythons_parser(
    fake_live: LiveServer, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    tried: list[int] = []

    def noted(body: bytes, **options: Any) -> Any:
        tried.append(len(body))
        return from_json(body, **options)

    def unable(body: bytes, **options: Any) -> Any:
        raise ValueError

    monkeypatch.setattr(large_json, "from_json", noted)
    new = [said(fake_live, path, padded(content)) for path in (TEXT, CHAT, TOKENS)]
    assert tried == 3 * [len(padded(content))]
    monkeypatch.setattr(large_json, "from_json", unable)
    assert new == [said(fake_live, path, padded(content)) for path in (TEXT, CHAT, TOKENS)]


def test_small_bodies_are_pythons_affair(
    fake_live: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_json, "from_json", None)
    status, _ = said(fake_live, TEXT, b'{"prompt": "abc"}'.ljust(LARGE))
    assert status == 200


NUMBERS = st.floats() | st.integers()
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def exactly(value: Any) -> Any:
    """With what `==` does not see: kinds of numbers, signs of zeros, the order of fields."""
    match value:
        case float():
            return "float", repr(value), math.copysign(1, value)
        case dict():
            return [(name, exactly(inner)) for name, inner in value.items()]
        case list():
            return ["list", *map(exactly, value)]
        case _:
            return type(value), value


@given(VALUES, st.booleans())
def test_both_parsers_read_the_same_values(value: Any, in_ascii: bool) -> None:
    text = json.dumps(value, ensure_ascii=in_ascii).encode("utf-8", "replace")
    assert exactly(from_json(text, cache_strings=False)) == exactly(json.loads(text))
