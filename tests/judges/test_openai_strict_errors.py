"""The official client raises the exception that it has for each refusal, with parameter and code."""

import threading
from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.judges.asking import ENDPOINTS, MODEL, Ask, chat, complete
from tests.server.conftest import LiveServer, serving
from tests.server.fake_engine import FakeEngine
from yaie.core.errors import EngineOverloadedError
from yaie.core.request import Request

both = pytest.mark.parametrize("ask", ENDPOINTS, ids=["chat", "completions"])

WRONG: list[tuple[str, dict[str, Any]]] = [
    ("temperature", {"temperature": -1}),
    ("temperature", {"temperature": "hot"}),
    ("top_p", {"top_p": 1.5}),
    ("top_k", {"extra": {"top_k": -2}}),
    ("min_p", {"extra": {"min_p": 2}}),
    ("presence_penalty", {"presence_penalty": 3}),
    ("frequency_penalty", {"frequency_penalty": -3}),
    ("repetition_penalty", {"extra": {"repetition_penalty": 0}}),
    ("n", {"n": 0}),
    ("n", {"n": 129}),
    ("seed", {"seed": 2**70}),
    ("max_tokens", {"max_tokens": -1}),
    ("stop", {"stop": ""}),
    ("stop", {"stop": ["a"] * 65}),
    ("stop_token_ids", {"extra": {"stop_token_ids": "x"}}),
    ("logit_bias", {"logit_bias": {"x": 1}}),
    ("logit_bias", {"logit_bias": {"5": 101}}),
    ("logit_bias", {"logit_bias": {"99999": 1}}),
    ("truncate_prompt_tokens", {"extra": {"truncate_prompt_tokens": 0}}),
    ("stream_options", {"stream_options": {"include_usage": True}}),
    ("temprature", {"extra": {"temprature": 1}}),
]
CHAT_WRONG: list[tuple[str, dict[str, Any]]] = [
    ("top_logprobs", {"logprobs": True, "top_logprobs": 21}),
    ("top_logprobs", {"top_logprobs": 2}),
    ("response_format.type", {"response_format": {"type": "xml"}}),
    ("tool_choice", {"tool_choice": "required"}),
    ("tools[0].function.name", {"tools": [{"type": "function", "function": {}}]}),
    ("max_completion_tokens", {"max_completion_tokens": 5}),
]
TEXT_WRONG: list[tuple[str, dict[str, Any]]] = [
    ("logprobs", {"logprobs": 21}),
    ("best_of", {"best_of": 3}),
    ("suffix", {"suffix": "x"}),
    ("max_tokens", {"max_tokens": 0}),
]


def refused(ask: Ask, client: OpenAI, param: str, options: dict[str, Any]) -> None:
    with pytest.raises(openai.BadRequestError) as refusal:
        ask(client, **options)
    error = refusal.value
    assert (error.status_code, error.param, error.type) == (400, param, "invalid_request_error")
    assert error.code is not None
    assert param.split(".")[-1] in error.message


@both
@pytest.mark.parametrize(("param", "options"), WRONG, ids=str)
def test_wrong_value_is_a_bad_request_that_names_the_parameter(
    client: OpenAI, ask: Ask, param: str, options: dict[str, Any]
) -> None:
    refused(ask, client, param, options)


@pytest.mark.parametrize(("param", "options"), CHAT_WRONG, ids=str)
def test_wrong_value_of_a_conversation(client: OpenAI, param: str, options: dict[str, Any]) -> None:
    refused(chat, client, param, options)


@pytest.mark.parametrize(("param", "options"), TEXT_WRONG, ids=str)
def test_wrong_value_of_a_text(client: OpenAI, param: str, options: dict[str, Any]) -> None:
    refused(complete, client, param, options)


@both
@pytest.mark.parametrize("stream", [False, True])
def test_unknown_model_is_not_found(client: OpenAI, ask: Ask, stream: bool) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        ask(client, model="gpt-4", stream=stream)
    assert (missing.value.param, missing.value.code) == ("model", "model_not_found")
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-4")


def test_endpoint_that_is_not_there_is_not_found(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError):
        client.moderations.create(model=MODEL, input="x")


@pytest.mark.parametrize("stream", [False, True])
def test_prompt_too_long_is_told_with_both_numbers(
    client: OpenAI, live: LiveServer, stream: bool
) -> None:
    limit = live.llm.max_model_len
    with pytest.raises(openai.BadRequestError) as refusal:
        complete(client, [5] * (limit + 7), stream=stream)
    assert refusal.value.code == "context_length_exceeded"
    assert str(limit) in refusal.value.message
    assert str(limit + 7) in refusal.value.message


def test_body_too_large_is_refused_with_413(client: OpenAI) -> None:
    with pytest.raises(openai.APIStatusError) as refusal:
        complete(client, "x" * 20_000_000)
    assert refusal.value.status_code == 413


@pytest.mark.parametrize("key", ["mistaken", "secret2", "SECRET"])
def test_wrong_key_is_an_authentication_error(key: str) -> None:
    with serving(FakeEngine, api_key=("secret", "other")) as server:
        for right in ("secret", "other"):
            assert server.openai().with_options(api_key=right).models.list().data[0].id == "fake"
        with pytest.raises(openai.AuthenticationError) as refusal:
            server.openai().with_options(api_key=key).models.list()
        assert refusal.value.status_code == 401
        assert refusal.value.type == "authentication_error"
        assert key not in refusal.value.message


class FullEngine(FakeEngine):
    """Its queue is full."""

    def add_request(self, *_: Any, **__: Any) -> list[Request]:
        raise EngineOverloadedError("2048 requests wait already; try again later")


def test_full_queue_is_told_as_503_with_a_time_to_come_back() -> None:
    with serving(FullEngine) as server, pytest.raises(openai.InternalServerError) as refusal:
        server.openai().completions.create(model="fake", prompt="x")
    assert refusal.value.status_code == 503
    assert int(refusal.value.response.headers["retry-after"]) >= 1


def test_model_that_still_loads_is_told_as_503() -> None:
    loaded = threading.Event()

    def load() -> FakeEngine:
        loaded.wait()
        return FakeEngine()

    with serving(load, wait=False) as server:
        with pytest.raises(openai.InternalServerError) as refusal:
            server.openai().completions.create(model="fake", prompt="x")
        assert refusal.value.status_code == 503
        loaded.set()


def test_request_that_fails_in_the_engine_is_a_500_and_the_next_one_is_answered() -> None:
    fake = FakeEngine()
    fake.poison = "poison"
    with serving(lambda: fake) as server:
        client = server.openai()
        for stream in (False, True):
            with pytest.raises(openai.InternalServerError) as refusal:
                client.completions.create(model="fake", prompt="poison", stream=stream)
            assert refusal.value.status_code == 500
        assert client.completions.create(model="fake", prompt="abc").choices[0].text == "cba"


def test_failure_after_the_first_token_is_raised_out_of_the_stream() -> None:
    fake = FakeEngine()
    fake.pause_after(2)
    messages: Any = [{"role": "user", "content": "abcdef"}]
    with serving(lambda: fake) as server:
        stream = server.openai().chat.completions.create(
            model="fake", messages=messages, stream=True
        )
        assert next(iter(stream)).choices[0].delta.role == "assistant"
        fake.paused.wait(10)
        fake.fault = RuntimeError("secret path")
        fake.gate.set()
        with pytest.raises(openai.APIError) as failure:
            list(stream)
    assert "secret" not in failure.value.message
