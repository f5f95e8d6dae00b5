"""Large bodies are read by another parser in another process than small ones, and nobody can tell."""

import asyncio
import json
import math
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fastapi.exceptions import RequestValidationError
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from pydantic_core import from_json

from solutions.api_server.schemas import ChatRequest
from tests.server.conftest import LiveServer, serving
from tests.server.fake_engine import FakeEngine
from tests.server.test_bad_input import JSON
from yaie.core.errors import InvalidRequestError
from yaie.server import request_body
from yaie.server.body_process import parsed
from yaie.server.body_reader import BodyReader, body_reader, large_body_reader, reader_of
from yaie.server.dialects.responses_body import ResponsesRequest
from yaie.server.held_bodies import LARGE, SMALL
from yaie.server.request_body import JsonRequest
from yaie.server.wanted import Wanted

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
    return content + b" " * (SMALL + 1)


def said(server: LiveServer, path: str, content: bytes) -> Any:
    response = server.http.post(path, content=content, headers=JSON)
    answer = response.json()
    for volatile in ("id", "created"):
        answer.pop(volatile, None)
    return response.status_code, answer


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with serving(FakeEngine) as server:
        yield server


@pytest.mark.parametrize("content", ODD.values(), ids=ODD)
def test_whatever_is_odd_in_a_large_body_is_answered_as_in_a_small_one(
    server: LiveServer, content: bytes
) -> None:
    for path in (TEXT, CHAT, TOKENS):
        small = said(server, path, content)
        assert small[0] < 500
        before = body_reader.num_read
        assert said(server, path, padded(content)) == small
        was_read = "UTF-8" not in str(small)
        assert body_reader.num_read == before + was_read  # in the other process


HI = [{"role": "user", "content": "hi"}]
GOOD: dict[str, dict[str, Any]] = {
    CHAT: {"messages": HI, "max_tokens": 1},
    TEXT: {"prompt": [97, 98, 99], "max_tokens": 1},
    "/v1/responses": {"input": [*HI, *HI], "max_output_tokens": 1},
    "/v1/messages": {"messages": [*HI, *HI], "max_tokens": 1},
    "/v1/messages/count_tokens": {"messages": HI},
    "/tokenize": {"messages": HI},
    "/detokenize": {"tokens": [97, 98]},
    "/v1/embeddings": {"input": "abc"},
}
WRONG: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [*HI, {"role": "user", "content": 5}]},
    TEXT: {"prompt": ["a", 5]},
    "/v1/responses": {"input": HI, "tool_choice": "required"},  # seen as a chat completion alone
    "/v1/messages": {"messages": [{"role": "assistant", "content": ""}], "max_tokens": 1},
    "/v1/messages/count_tokens": {"messages": [{"role": "user", "content": [{"type": "x"}]}]},
    "/tokenize": {"messages": [{"role": "user", "content": "hi", "nme": 1}]},
    "/detokenize": {"tokens": [-1]},
    "/v1/embeddings": {"input": []},
}


@pytest.mark.parametrize("path", GOOD)
def test_every_endpoint_takes_a_large_body_as_it_takes_a_small_one(
    live: LiveServer, path: str
) -> None:
    for body, status in ((GOOD[path], 200), (WRONG[path], 400)):
        content = json.dumps({**body, **GREEDY.get(path, {})}).encode()
        small = live.http.post(path, content=content, headers=JSON)
        large = live.http.post(path, content=padded(content), headers=JSON)
        assert (small.status_code, large.status_code) == (status, status), small.text
        assert steady(large.json()) == steady(small.json())


GREEDY = {path: {"temperature": 0} for path in (CHAT, TEXT, "/v1/responses", "/v1/messages")}


def steady(answer: Any) -> Any:
    """Without ids, times, and what the cache changes."""
    if isinstance(answer, list):
        return [steady(item) for item in answer]
    if not isinstance(answer, dict):
        return answer
    volatile = re.compile("(^|_)id$|created|completed_at|cache|prompt_tokens_details")
    return {name: steady(item) for name, item in answer.items() if not volatile.search(name)}


def test_the_event_loop_neither_parses_nor_validates_a_large_body(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values that it makes of the body, and copies of it."""
    parsings: list[int] = []
    validations: list[Any] = []

    def noted(body: bytes, **_: Any) -> Any:
        parsings.append(len(body))
        return parsed(body)

    content = json.dumps({"messages": HI * 500, "max_tokens": 1}).encode()
    for name in ("parsed", "from_json"):
        monkeypatch.setattr(request_body, name, noted)
    adapter = request_body.adapter
    monkeypatch.setattr(
        request_body, "adapter", lambda kind: validations.append(kind) or adapter(kind)
    )
    assert server.http.post(CHAT, content=padded(content), headers=JSON).status_code == 200
    assert (parsings, validations) == ([], [])
    assert server.http.post(CHAT, json={"messages": HI, "max_tokens": 1}).status_code == 200
    assert (len(parsings), len(validations)) == (1, 1)


def test_a_body_that_is_there_is_not_copied() -> None:
    content = b"x" * 100_000

    async def receive() -> Any:
        return {"type": "http.request", "body": content, "more_body": False}

    request = JsonRequest({"type": "http", "headers": []}, receive)
    assert asyncio.run(request.body()) is content


def test_one_body_is_read_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert body_reader._thread._max_workers == 1
    running: list[int] = []
    most: list[int] = []
    ask = BodyReader._ask

    def counted(self: BodyReader, *args: Any) -> bytes:
        running.append(1)
        most.append(len(running))
        answer = ask(self, *args)
        running.pop()
        return answer

    monkeypatch.setattr(BodyReader, "_ask", counted)
    wanted = Wanted("yaie.server.tokens:DetokenizeRequest")
    with ThreadPoolExecutor(4) as pool:
        bodies = [pool.submit(body_reader.read, b'{"tokens": [1]}', wanted) for _ in range(8)]
        assert {tuple(body.result().value.tokens) for body in bodies} == {(1,)}
    assert max(most) == 1


def test_bodies_of_megabytes_hold_up_no_smaller_ones() -> None:
    assert reader_of(b" " * LARGE) is body_reader
    assert reader_of(b" " * (LARGE + 1)) is large_body_reader


def test_a_body_that_takes_too_long_ends_the_process_by_the_time_it_computes() -> None:
    """Not by the clock: on a busy machine all take long."""
    reader = BodyReader("test", steps_back=False)
    reader._main = (
        "from yaie.server import body_process\n"
        "body_process.CPU_SECONDS = 0.2\n"
        "body_process.read = lambda *_: [1 for _ in iter(int, 1)]\n"
        "body_process.main(steps_back=False)"
    )
    try:
        with pytest.raises(InvalidRequestError, match="too much time or memory"):
            reader.read(b"{}", Wanted("yaie.server.tokens:DetokenizeRequest"))
    finally:
        reader.close()


def test_a_process_that_dies_over_a_body_is_replaced() -> None:
    reader = BodyReader("test", steps_back=True)
    wanted = Wanted("yaie.server.tokens:DetokenizeRequest")
    try:
        assert reader.read(b'{"tokens": [1]}', wanted).value.tokens == [1]
        assert reader._process is not None
        reader._process.kill()
        with pytest.raises(InvalidRequestError, match="too much time or memory"):
            reader.read(b'{"tokens": [2]}', wanted)
        assert reader.read(b'{"tokens": [3]}', wanted).value.tokens == [3]
        assert reader.num_started == 2
    finally:
        reader.close()


@pytest.mark.parametrize("field", ["include", "stop_token_ids", "messages", "tools", "metadata"])
def test_of_ten_thousand_faults_one_is_written(field: str) -> None:
    """Each would be an object of its own, for all of which the others wait."""
    kind: Any = ResponsesRequest if field == "include" else ChatRequest
    wrong: Any = (
        [[]] * 10_000 if field != "metadata" else {str(number): 1 for number in range(10_000)}
    )
    with pytest.raises((ValidationError, RequestValidationError)) as found:
        kind.model_validate({"messages": HI, "input": "x", field: wrong})
    assert len(found.value.errors()) <= 3


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
