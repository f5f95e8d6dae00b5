"""Lab 8: every failure as OpenAI's error object."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.exceptions import HTTPException
from pydantic import BaseModel

from solutions.api_server.errors import (
    MAX_MESSAGE_CHARS,
    clean,
    error_body,
    error_object,
    error_response,
    http_error,
    install_error_handlers,
    validation_error,
)
from yaie.core.errors import (
    ContextLengthError,
    EngineDeadError,
    EngineOverloadedError,
    EngineUnavailableError,
    InvalidRequestError,
    ModelNotFoundError,
    YaieError,
)


def error_in(response: Any) -> dict[str, Any]:
    body = json.loads(response.body)
    assert body.keys() == {"error"}
    assert body["error"].keys() == {"message", "type", "param", "code"}
    error: dict[str, Any] = body["error"]
    return error


def test_an_error_object_has_all_four_keys() -> None:
    assert error_object("No.", type="server_error") == {
        "error": {"message": "No.", "type": "server_error", "param": None, "code": None}
    }


@pytest.mark.parametrize("length", [0, 1, MAX_MESSAGE_CHARS - 1, MAX_MESSAGE_CHARS])
def test_a_message_that_fits_is_left_alone(length: int) -> None:
    assert clean("é" * length) == "é" * length


def test_a_message_and_a_parameter_are_capped() -> None:
    error = error_object("x" * 10_000, type="t", param="y" * 10_000)["error"]
    assert error["message"] == "x" * (MAX_MESSAGE_CHARS - 1) + "…"
    assert error["param"] == "y" * (MAX_MESSAGE_CHARS - 1) + "…"


def test_half_a_surrogate_pair_is_made_sendable() -> None:
    error = error_object("a\ud800b", type="t", param="\udfff")["error"]
    assert (error["message"], error["param"]) == ("a?b", "?")


@pytest.mark.parametrize(
    ("error", "status", "type", "code"),
    [
        (InvalidRequestError("m", param="n"), 400, "invalid_request_error", "invalid_value"),
        (ContextLengthError("m"), 400, "invalid_request_error", "context_length_exceeded"),
        (ModelNotFoundError("m", param="model"), 404, "not_found_error", "model_not_found"),
        (EngineOverloadedError("m"), 503, "overloaded_error", "overloaded"),
        (EngineUnavailableError("m"), 503, "server_error", "engine_unavailable"),
        (EngineDeadError("m"), 503, "server_error", "engine_dead"),
        (YaieError("m"), 500, "server_error", None),
    ],
)
def test_an_error_of_ours_keeps_its_status_type_code_and_parameter(
    error: YaieError, status: int, type: str, code: str | None
) -> None:
    response = error_response(error)
    assert response.status_code == status
    told = error_in(response)
    assert told == {"message": "m", "type": type, "param": error.param, "code": code}


@pytest.mark.parametrize("kind", [EngineOverloadedError, EngineUnavailableError])
def test_an_error_that_passes_by_itself_says_when_to_retry(kind: type[YaieError]) -> None:
    assert error_response(kind("m")).headers["retry-after"] == "1"


@pytest.mark.parametrize("kind", [EngineDeadError, InvalidRequestError, YaieError, ValueError])
def test_no_other_error_says_when_to_retry(kind: type[Exception]) -> None:
    assert "retry-after" not in error_response(kind("m")).headers


def test_an_accident_tells_the_client_nothing() -> None:
    accident = RuntimeError("the prompt was 'secret'")
    assert "secret" not in json.dumps(error_body(accident))
    response = error_response(accident)
    assert response.status_code == 500
    assert error_in(response)["code"] == "internal_error"


@pytest.mark.parametrize(
    ("status", "type"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (413, "invalid_request_error"),
        (499, "invalid_request_error"),
        (500, "server_error"),
        (502, "server_error"),
    ],
)
def test_a_failure_without_an_exception_gets_the_type_of_its_status(status: int, type: str) -> None:
    response = http_error(status, "m", {"X-Why": "because"})
    assert response.status_code == status
    assert response.headers["x-why"] == "because"
    assert error_in(response) == {"message": "m", "type": type, "param": None, "code": None}


def complaint(type: str, *loc: str | int, **context: Any) -> dict[str, Any]:
    return {"type": type, "loc": ("body", *loc), "msg": "It is wrong.", "ctx": context}


@pytest.mark.parametrize(
    ("loc", "param"),
    [
        (("temperature",), "temperature"),
        (("messages", 0, "content"), "messages[0].content"),
        (("prompt", 1, 2), "prompt[1][2]"),
        (("metadata", "0"), "metadata.0"),
        (("stream_options", "include_usage"), "stream_options.include_usage"),
    ],
)
def test_a_validation_error_names_the_parameter_as_a_client_writes_it(
    loc: tuple[str | int, ...], param: str
) -> None:
    error = validation_error([complaint("int_type", *loc), complaint("int_type", "other")])
    assert error.param == param
    assert error.message == f"{param}: It is wrong."
    assert error.status == 400


def test_a_body_that_is_no_json_has_no_parameter() -> None:
    error = validation_error([complaint("json_invalid", 17, error="Expecting value")])
    assert error.param is None
    assert error.message == "The body is not valid JSON: Expecting value."


def test_a_body_that_is_no_object_has_no_parameter() -> None:
    error = validation_error([complaint("missing")])
    assert error.param is None
    assert error.message.startswith("The body must be a JSON object")


@pytest.mark.parametrize(
    ("type", "words"),
    [
        ("extra_forbidden", "unknown or not supported"),
        ("missing", "is required"),
        ("none_required", "not supported"),
        ("int_type", "It is wrong."),
    ],
)
def test_a_complaint_is_worded_for_clients(type: str, words: str) -> None:
    assert words in validation_error([complaint(type, "n")]).message


class Body(BaseModel):
    n: int


def failing_app() -> FastAPI:
    app = FastAPI()
    install_error_handlers(app)

    @app.get("/{what}")
    async def fail(what: str) -> None:
        raise {
            "ours": EngineOverloadedError("full"),
            "theirs": HTTPException(401, "Who are you?", {"WWW-Authenticate": "Bearer"}),
            "accident": KeyError("secret"),
        }[what]

    @app.post("/")
    async def take(body: Body) -> None:
        pass

    return app


@pytest.mark.parametrize(
    ("method", "path", "status", "words"),
    [
        ("GET", "/ours", 503, "full"),
        ("GET", "/theirs", 401, "Who are you?"),
        ("GET", "/accident", 500, "Internal server error."),
        ("GET", "/a/b", 404, "nothing at GET /a/b"),
        ("PUT", "/", 405, "does not take the method PUT"),
        ("POST", "/", 400, "n: "),
    ],
)
def test_an_application_answers_every_failure_in_this_form(
    method: str, path: str, status: int, words: str
) -> None:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(failing_app(), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            return await client.request(method, path, json={"n": "one"})

    response = asyncio.run(ask())
    assert response.status_code == status
    assert words in response.json()["error"]["message"]
    assert "secret" not in response.text
    assert ("www-authenticate" in response.headers) == (status == 401)
