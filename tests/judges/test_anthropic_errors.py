"""Anthropic's own client raises its exception for each refusal, and tries again where that helps."""

import threading
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from anthropic import Anthropic

from tests.judges.asking_anthropic import HELLO, WEATHER, ask, connect
from tests.server.conftest import LiveServer, serving
from tests.server.fake_engine import FakeEngine
from yaie.core.errors import EngineOverloadedError, InvalidRequestError
from yaie.core.request import Request


@pytest.fixture
def judge(live: LiveServer) -> Anthropic:
    return connect(live)


NO_SCHEMA = {"type": "json_schema", "schema": {"type": "x"}}
WRONG: list[tuple[str, dict[str, Any]]] = [
    ("temperature", {"extra": {"temperature": -1}}),
    ("top_p", {"extra": {"top_p": 1.5}}),
    ("top_k", {"extra": {"top_k": -2}}),
    ("max_tokens", {"max_tokens": 0}),
    ("stop_sequences", {"stop_sequences": [""]}),
    ("stop_sequences", {"stop_sequences": ["a"] * 65}),
    ("messages", {"messages": []}),
    ("messages[0]", {"messages": [{"role": "bird", "content": "x"}]}),
    ("messages[0].content[0]", {"messages": [{"role": "user", "content": [{"type": "image"}]}]}),
    ("images, documents", {"messages": [{"role": "user", "content": [{"type": "document"}]}]}),
    ("messages", {"messages": [*HELLO, {"role": "assistant", "content": ""}]}),
    ("system", {"system": [{"type": "image"}]}),
    ("tools[0].input_schema", {"tools": [{"name": "x"}]}),
    ("tools[0].input_schema", {"tools": [{"name": "x", "input_schema": {"type": "array"}}]}),
    ("tool_choice", {"tool_choice": {"type": "any"}}),
    ("tool_choice", {"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "x"}}),
    ("output_config.format", {"output_config": {"format": NO_SCHEMA}}),
    ("prompt is too long", {"messages": [{"role": "user", "content": "x" * 5000}]}),
    ("container", {"container": 5}),
    ("temprature", {"extra": {"temprature": 1}}),
]  # fmt: skip


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("named", "options"), WRONG, ids=[named for named, _ in WRONG])
def test_wrong_value_is_a_bad_request_that_names_the_field(
    judge: Anthropic, named: str, options: dict[str, Any], stream: bool
) -> None:
    with pytest.raises(anthropic.BadRequestError) as refusal:
        ask(judge, **options, stream=stream)
    error = refusal.value
    assert (error.status_code, error.type) == (400, "invalid_request_error")
    assert error.api_message is not None
    assert named in error.api_message
    assert not any(
        word in error.api_message for word in ("max_completion", "function", "response_")
    )
    assert error.request_id


def test_unknown_model_and_path_are_not_found(judge: Anthropic) -> None:
    for ask_wrongly in (
        lambda: ask(judge, model="claude-x"),
        lambda: judge.messages.count_tokens(model="claude-x", messages=HELLO),
        lambda: judge.messages.batches.retrieve("b"),
    ):
        with pytest.raises(anthropic.NotFoundError) as missing:
            ask_wrongly()
        assert missing.value.type == "not_found_error"


def test_body_too_large_is_told_so(judge: Anthropic) -> None:
    with pytest.raises(anthropic.ContentTooLargeError) as refusal:
        ask(judge, messages=[{"role": "user", "content": "x" * 20_000_000}])
    assert refusal.value.status_code == 413
    assert refusal.value.body["error"]["type"] == "request_too_large"  # type: ignore[index, call-overload]


@pytest.fixture
def guarded() -> Iterator[LiveServer]:
    with serving(FakeEngine, api_key=("secret", "other")) as server:
        yield server


def test_key_opens_however_the_client_shows_it(guarded: LiveServer) -> None:
    ways: list[dict[str, Any]] = [
        {"api_key": "secret"},
        {"auth_token": "other", "api_key": None},
        {"api_key": "wrong", "default_headers": {"X-Api-Key": "secret"}},
    ]
    for way in ways:
        message = ask(connect(guarded, **way), model="fake", extra={})
        assert message.content[0].text == "olleh"
    with pytest.raises(anthropic.AuthenticationError) as refusal:
        ask(connect(guarded, api_key="mistaken"), model="fake")
    assert (refusal.value.status_code, refusal.value.type) == (401, "authentication_error")
    assert "mistaken" not in refusal.value.message


class FullEngine(FakeEngine):
    """Its queue is full."""

    asked = 0

    def add_request(self, *_: Any, **__: Any) -> list[Request]:
        FullEngine.asked += 1
        raise EngineOverloadedError("2048 requests wait already; try again later")


def test_full_queue_is_an_overload_that_is_retried() -> None:
    FullEngine.asked = 0
    with serving(FullEngine) as server, pytest.raises(anthropic.OverloadedError) as refusal:
        ask(connect(server, max_retries=1), model="fake")
    assert (refusal.value.status_code, refusal.value.type) == (529, "overloaded_error")
    assert int(refusal.value.response.headers["retry-after"]) >= 1
    assert FullEngine.asked == 2


class PickyEngine(FullEngine):
    """It takes no request."""

    def add_request(self, *_: Any, **__: Any) -> list[Request]:
        FullEngine.asked += 1
        raise InvalidRequestError("seed is odd", param="seed")


def test_bad_request_is_not_retried() -> None:
    FullEngine.asked = 0
    with serving(PickyEngine) as server, pytest.raises(anthropic.BadRequestError):
        ask(connect(server, max_retries=3), model="fake")
    assert FullEngine.asked == 1


def test_model_that_still_loads_is_told_as_503() -> None:
    loaded = threading.Event()

    def load() -> FakeEngine:
        loaded.wait()
        return FakeEngine()

    with serving(load, wait=False) as server:
        with pytest.raises(anthropic.ServiceUnavailableError) as refusal:
            ask(connect(server), model="fake")
        assert refusal.value.type == "api_error"
        loaded.set()


def test_request_that_fails_in_the_engine_is_an_internal_error_and_the_next_one_is_answered() -> (
    None
):
    fake = FakeEngine()
    fake.poison = "hello"
    with serving(lambda: fake) as server:
        client = connect(server)
        for stream in (False, True):
            with pytest.raises(anthropic.InternalServerError) as refusal:
                ask(client, model="fake", extra={}, stream=stream)
            assert (refusal.value.status_code, refusal.value.type) == (500, "api_error")
        messages = [{"role": "user", "content": "abc"}]
        assert ask(client, model="fake", messages=messages, extra={}).content[0].text == "cba"


def test_failure_after_the_first_token_is_raised_out_of_the_stream() -> None:
    fake = FakeEngine()
    fake.pause_after(2)
    with serving(lambda: fake) as server:
        stream = iter(ask(connect(server), model="fake", extra={}, stream=True))
        assert next(stream).type == "message_start"
        assert fake.paused.wait(10)
        fake.fault = RuntimeError("secret path")
        fake.gate.set()
        with pytest.raises(anthropic.APIStatusError) as failure:
            list(stream)
    assert failure.value.type == "api_error"
    assert "secret" not in failure.value.message
