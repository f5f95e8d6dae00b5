"""Lab 8: the endpoints, on a service without an engine and with the official client."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import httpx
import openai
import pytest
from fastapi import FastAPI
from openai import AsyncOpenAI

from grader.kit.api import FakeService, Wire
from solutions.api_server import (
    check_model,
    install_error_handlers,
    make_router,
    model_card,
)
from yaie.core.errors import EngineOverloadedError, EngineUnavailableError, ModelNotFoundError

USER: Any = [{"role": "user", "content": "Hi"}]


def app_on(service: Any) -> FastAPI:
    app = FastAPI(redirect_slashes=False)
    install_error_handlers(app)
    app.include_router(make_router(service))
    return app


def with_client(service: Any, test: Callable[[httpx.AsyncClient], Coroutine[Any, Any, Any]]) -> Any:
    async def run() -> Any:
        transport = httpx.ASGITransport(app_on(service), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            return await asyncio.wait_for(test(client), 10)

    return asyncio.run(run())


def ask(service: Any, method: str, path: str, body: Any = None) -> httpx.Response:
    response: httpx.Response = with_client(
        service, lambda client: client.request(method, path, json=body)
    )
    return response


def with_openai(service: Any, test: Callable[[AsyncOpenAI], Coroutine[Any, Any, Any]]) -> Any:
    return with_client(
        service,
        lambda http: test(
            AsyncOpenAI(base_url="http://x/v1", api_key="-", http_client=http, max_retries=0)
        ),
    )


@pytest.fixture
def service() -> FakeService:
    return FakeService()


def test_the_model_is_listed_and_found_by_a_name_with_a_slash(service: FakeService) -> None:
    listed = ask(service, "GET", "/v1/models").json()
    assert listed["object"] == "list"
    (card,) = listed["data"]
    assert card == model_card(service, card["created"])
    assert (card["id"], card["max_model_len"]) == ("org/model", 128)
    found = ask(service, "GET", "/v1/models/org/model").json()
    assert found == model_card(service, found["created"])  # another server, perhaps a second later
    missing = ask(service, "GET", "/v1/models/other")
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == "model_not_found"


@pytest.mark.parametrize("name", [None, "org/model"])
def test_the_served_model_may_be_named_or_left_out(service: FakeService, name: str | None) -> None:
    check_model(service, name)


@pytest.mark.parametrize("name", ["", "model", "gpt-4"])
def test_another_model_is_refused_with_both_names(service: FakeService, name: str) -> None:
    with pytest.raises(ModelNotFoundError) as error:
        check_model(service, name)
    assert repr(name) in error.value.message
    assert "org/model" in error.value.message
    assert error.value.param == "model"


def test_the_official_client_reads_a_whole_conversation(service: FakeService) -> None:
    async def test(client: AsyncOpenAI) -> None:
        answer = await client.chat.completions.create(model="org/model", messages=USER, n=2)
        assert [choice.message.content for choice in answer.choices] == ["Hello", "Hello"]
        assert answer.usage is not None
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (5, 4)

    with_openai(service, test)


def test_the_official_client_reads_a_streamed_conversation(service: FakeService) -> None:
    async def test(client: AsyncOpenAI) -> None:
        stream = await client.chat.completions.create(
            model="org/model",
            messages=USER,
            stream=True,
            stream_options={"include_usage": True},
        )
        *chunks, last = [chunk async for chunk in stream]
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Hello"
        assert last.usage is not None
        assert last.usage.completion_tokens == 2

    with_openai(service, test)


@pytest.mark.parametrize("prompt", ["abc", ["abc", "d"], [1, 2, 3], [[1, 2, 3], [4]]])
def test_a_text_is_continued_from_each_form_of_prompt(service: FakeService, prompt: Any) -> None:
    async def test(client: AsyncOpenAI) -> None:
        answer = await client.completions.create(model="org/model", prompt=prompt)
        assert {choice.text for choice in answer.choices} == {"Hello"}
        assert answer.usage is not None
        is_one = isinstance(prompt, str) or isinstance(prompt[0], int)
        assert answer.usage.prompt_tokens == (3 if is_one else 4)

    with_openai(service, test)


def test_parameters_priority_and_defaults_reach_the_service(service: FakeService) -> None:
    service.sampling_defaults = {"temperature": 0.3, "top_k": 20}
    body = {"messages": USER, "top_k": 5, "stop": "END", "priority": -2}
    assert ask(service, "POST", "/v1/chat/completions", body).status_code == 200
    encoded, (_, prompts, params, priority) = service.calls
    assert encoded == ("encode_chat", USER, None)
    assert prompts == [[7] * 5]
    assert (params.temperature, params.top_k, params.stop) == (0.3, 5, ("END",))
    assert priority == -2
    service.calls.clear()
    ask(service, "POST", "/v1/completions", {"prompt": "x"})
    assert service.calls[0][3] == 0


@pytest.mark.parametrize("stream", [False, True])
def test_the_reply_that_is_sent_is_the_extended_one(service: FakeService, stream: bool) -> None:
    response = ask(service, "POST", "/v1/completions", {"prompt": "x", "stream": stream})
    assert '"extended":true' in response.text
    (extended,) = service.extended
    assert extended[1].prompt == "x"


@pytest.mark.parametrize("stream", [False, True])
def test_a_refused_submission_is_a_status_even_for_a_stream(
    service: FakeService, stream: bool
) -> None:
    service.fault = EngineOverloadedError("full")
    body = {"prompt": "x", "stream": stream}
    response = ask(service, "POST", "/v1/completions", body)
    assert response.status_code == 503
    assert response.headers["retry-after"]
    assert response.json()["error"]["type"] == "overloaded_error"


@pytest.mark.parametrize("stream", [False, True])
def test_a_reply_that_cannot_be_extended_closes_its_stream(
    service: FakeService, stream: bool
) -> None:
    service.extend_fault = KeyError("secret")
    response = ask(service, "POST", "/v1/completions", {"prompt": "x", "stream": stream})
    assert response.status_code == 500
    assert "secret" not in response.text
    assert service.streams[0].closed


def test_the_first_thing_wrong_is_the_one_reported(service: FakeService) -> None:
    body: dict[str, Any] = {
        "model": "other",
        "temperature": -1,
        "messages": [{"role": "robot", "content": "x"}],
    }
    wrong = []
    for fixed in ({}, {"model": "org/model"}, {"temperature": 1}):
        body |= fixed
        wrong.append(ask(service, "POST", "/v1/chat/completions", body).json()["error"]["param"])
    assert wrong == ["model", "temperature", "messages[0].role"]


def test_errors_are_those_of_the_official_client(service: FakeService) -> None:
    async def test(client: AsyncOpenAI) -> None:
        with pytest.raises(openai.NotFoundError) as missing:
            await client.chat.completions.create(model="gpt-4", messages=USER)
        assert missing.value.code == "model_not_found"
        with pytest.raises(openai.BadRequestError) as bad:
            await client.chat.completions.create(model="org/model", messages=USER, top_p=2)
        assert bad.value.param == "top_p"

    with_openai(service, test)


class LoadingBackend:
    """Knows nothing yet."""

    def __getattr__(self, name: str) -> Any:
        raise EngineUnavailableError("The model is still loading.")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/models", None),
        ("GET", "/v1/models/x", None),
        ("POST", "/v1/chat/completions", {"messages": USER}),
        ("POST", "/v1/completions", {"prompt": "x"}),
    ],
)
def test_a_router_answers_while_its_model_loads(method: str, path: str, body: Any) -> None:
    response = ask(LoadingBackend(), method, path, body)
    assert response.status_code == 503
    assert response.headers["retry-after"]


@pytest.mark.parametrize("stream", [b"false", b"true"])
@pytest.mark.parametrize(
    ("path", "asked"),
    [("/v1/completions", b'"prompt": "x"'),
     ("/v1/chat/completions", b'"messages": [{"role": "user", "content": "x"}]')],
)  # fmt: skip
def test_a_client_that_leaves_closes_its_stream(
    service: FakeService, stream: bytes, path: str, asked: bytes
) -> None:
    service.hangs = True
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "scheme": "http",
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
    }

    async def test() -> None:
        wire = Wire()
        body = [{"type": "http.request", "body": b'{%s, "stream": %s}' % (asked, stream)}]

        async def receive() -> Any:
            return body.pop() if body else await wire.receive()

        serving = asyncio.create_task(app_on(service)(scope, receive, wire.send))
        while not (service.streams and wire.waiting):
            await asyncio.sleep(0)
        assert not service.streams[0].closed
        wire.leave.set()
        await serving
        assert service.streams[0].closed
        assert wire.waiting == 0

    asyncio.run(asyncio.wait_for(test(), 10))
