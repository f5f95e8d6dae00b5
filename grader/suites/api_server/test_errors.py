"""Task 8.1: every failure as OpenAI's error object."""

import json
import re
from types import ModuleType
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import HTTPException
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from grader.kit import Mismatch, examples, expect, expect_equal, note, task
from grader.kit.api import ask
from yaie.core.errors import (
    ContextLengthError,
    EngineDeadError,
    EngineOverloadedError,
    EngineUnavailableError,
    InvalidRequestError,
    ModelNotFoundError,
    QueueTimeoutError,
    YaieError,
)

SHAPE = (
    'A client reads error["message"], ["type"], ["param"] and ["code"]: all four are always there.'
)
BY_STATUS = (
    'The type is TYPES[status] where that exists, else "invalid_request_error" for a status below 500 '
    'and "server_error" from there on.'
)
SECRET = "FileNotFoundError: /srv/models/secret.safetensors"
STEPS = st.lists(
    st.sampled_from(["messages", "content", "n", "0"]) | st.integers(0, 12), max_size=5
)


def told(response: Any) -> Any:
    """The body of a response as a client reads it."""
    try:
        return json.loads(response.body)
    except ValueError as error:
        raise Mismatch("the body of the response is not JSON", got=str(error)) from None


def shape(message: str, type: str, param: str | None = None, code: str | None = None) -> Any:
    return {"error": {"message": message, "type": type, "param": param, "code": code}}


def expect_shape(got: Any, expected: Any, what: str, why: str = "") -> None:
    """An error object. why: of one that has the four keys, and another value."""
    inner = got.get("error") if isinstance(got, dict) else None
    has_all = isinstance(inner, dict) and got.keys() == expected.keys()
    is_whole = has_all and inner is not None and inner.keys() == expected["error"].keys()
    expect_equal(got, expected, what, why=why if is_whole else SHAPE)


@task("8.1")
def test_an_error_object_has_all_four_keys(part: ModuleType) -> None:
    """An error object is {"error": {...}} with message, type, param and code, None if unknown."""
    note('error_object("No.", type="server_error")')
    got = part.error_object("No.", type="server_error")
    expect_shape(got, shape("No.", "server_error"), "an error without param and code")
    note('error_object("No.", type="t", param="n", code="c")')
    got = part.error_object("No.", type="t", param="n", code="c")
    expect_shape(got, shape("No.", "t", "n", "c"), "an error with all four")


@task("8.1")
def test_a_long_message_is_capped(part: ModuleType) -> None:
    """A text of up to MAX_MESSAGE_CHARS stays; a longer one is cut to that length, and ends with "…"."""
    most = part.MAX_MESSAGE_CHARS
    expect(part.clean("é" * most) == "é" * most, "clean changes a text that fits exactly")
    why = "A message that quotes a prompt of megabytes must not be as long as the prompt."
    for length in (most + 1, 20 * most):
        note(f"clean('é' * {length})")
        got = part.clean("é" * length)
        what = f"the length of a text of {length} characters, cut"
        whole = f'MAX_MESSAGE_CHARS is {most}: so many characters are left, the "…" is one of them.'
        expect_equal(len(got), most, what, why=why if len(got) > most + 1 else whole)
        expect_equal(
            got[-3:], "éé…", "the end of a text that was cut", why="It must show that it was."
        )
    error = part.error_object("x" * 2 * most, type="t", param="y" * 2 * most)["error"]
    lengths = (len(error["message"]), len(error["param"]))
    why = why if max(lengths) > most + 1 else ""
    expect_equal(lengths, (most, most), "the lengths of a message and a param", why=why)
    ends = (error["message"][-3:], error["param"][-3:])
    what = "the ends of a message and a param that were cut"
    expect_equal(ends, ("xx…", "yy…"), what, why="It must show that they were.")


@task("8.1")
def test_half_a_surrogate_pair_can_be_sent(part: ModuleType) -> None:
    """Half of a surrogate pair becomes "?", in the message and in the parameter's name."""
    why = 'A client may send "\\ud800" in JSON; quoted back, it makes UTF-8 encoding of the answer fail.'
    expect_equal(part.clean("a\ud800b🙂"), "a?b🙂", "clean of a text with half a pair", why=why)
    error = part.error_object("\ud800", type="t", param="\udfff")["error"]
    expect_equal((error["message"], error["param"]), ("?", "?"), "message and param", why=why)


def answered(part: ModuleType, error: YaieError, status: int, type: str, code: str | None) -> None:
    """One of our errors, as a body and as a response."""
    name, expected = error.__class__.__name__, shape("m", type, error.param, code)
    asked = f"{name}('m'{f', param={error.param!r}' if error.param else ''})"
    note(f"error_body({asked})")
    body = part.error_body(error)
    note(f"    # -> {body}")
    expect_shape(body, expected, f"error_body of a {name}")
    note(f"error_response({asked})")
    response = part.error_response(error)
    note(f"    # -> a response with status {response.status_code}")
    why = "The status says whether a client should change the request, wait or give up."
    expect_equal(response.status_code, status, f"the status for a {name}", why=why)
    expect_shape(told(response), expected, f"the body for a {name}")


@task("8.1")
def test_an_error_of_ours_keeps_its_status_type_code_and_parameter(part: ModuleType) -> None:
    """A YaieError becomes a response with its own status, message, type, param and code."""
    for error, status, type, code in (
        (InvalidRequestError("m", param="n"), 400, "invalid_request_error", "invalid_value"),
        (ContextLengthError("m"), 400, "invalid_request_error", "context_length_exceeded"),
        (ModelNotFoundError("m", param="model"), 404, "not_found_error", "model_not_found"),
        (EngineOverloadedError("m"), 503, "overloaded_error", "overloaded"),
        (EngineDeadError("m"), 503, "server_error", "engine_dead"),
        (YaieError("m"), 500, "server_error", None),
    ):
        answered(part, error, status, type, code)


@task("8.1")
def test_an_accident_tells_the_client_nothing(part: ModuleType) -> None:
    """Of an exception that is no YaieError the client learns "Internal server error.", status 500."""
    why = "The words of an accident may hold a path, a prompt or a key; they belong in the log."
    expected = shape("Internal server error.", "server_error", None, "internal_error")
    for accident in (RuntimeError(SECRET), KeyError("secret"), ValueError(SECRET)):
        note(f"error_body({accident!r})")
        got = part.error_body(accident)
        leaks = why if "secret" in str(got) else ""
        expect_shape(got, expected, "error_body of an accident", why=leaks)
        note(f"error_response({accident!r})")
        response = part.error_response(accident)
        expect_equal(response.status_code, 500, "the status for an accident")
        leaks = why if "secret" in str(told(response)) else ""
        expect_shape(told(response), expected, "the body for an accident", why=leaks)


class Foreign(Exception):
    """An accident of a library that has a status and words of its own."""

    status = status_code = 404
    message = SECRET


@task("8.1")
def test_a_library_has_no_say_in_the_status(part: ModuleType) -> None:
    """An exception that is no YaieError is a 500, whatever attributes it has."""
    why = (
        "Another library's status tells how its call went, inside the server: the client did nothing "
        "wrong. Ask for the class, not for an attribute."
    )
    response = part.error_response(Foreign(SECRET))
    expect_equal(response.status_code, 500, "the status for an error with status 404", why=why)
    expected = shape("Internal server error.", "server_error", None, "internal_error")
    expect_equal(told(response), expected, "the body for an error with a message", why=why)


@task("8.1")
def test_what_passes_by_itself_says_when_to_retry(part: ModuleType) -> None:
    """A full queue and a loading model carry Retry-After; no other error does."""
    for kind in (EngineOverloadedError, EngineUnavailableError, QueueTimeoutError):
        note(f'error_response({kind.__name__}("m"))')
        got = part.error_response(kind("m")).headers.get("retry-after")
        why = "Clients that honour Retry-After come back by themselves; without it they give up."
        if kind is QueueTimeoutError:
            why = f"A queue timeout is an overload as well. {why}"
        what = f"Retry-After of an {kind.__name__}"
        expect_equal(got, part.RETRY_AFTER_SECONDS, what, why=why)
    for error in (EngineDeadError("m"), InvalidRequestError("m"), YaieError("m"), KeyError("m")):
        note(f"error_response({error!r})")
        got = part.error_response(error).headers.get("retry-after")
        why = "Trying again cannot help here: a dead engine stays dead, a bad request stays bad."
        expect_equal(got, None, f"Retry-After of a {error.__class__.__name__}", why=why)


def answered_status(part: ModuleType, status: int, type: str) -> None:
    """A failure that has a status and no exception."""
    note(f'http_error({status}, "m", {{"X-Why": "because"}})')
    response = part.http_error(status, "m", {"X-Why": "because"})
    note(f"    # -> a response with {response.body.decode()}")
    expect_equal(response.status_code, status, "the status of http_error")
    expect_shape(told(response), shape("m", type), f"the body for status {status}", why=BY_STATUS)
    why = "A 401 must say how to authenticate, a 405 what is allowed: both are in headers."
    expect_equal(response.headers.get("x-why"), "because", "a header that was given", why=why)


@task("8.1")
def test_a_failure_without_an_exception_has_the_type_of_its_status(part: ModuleType) -> None:
    """http_error gives a status its type, with the headers it was given."""
    for status, type in (
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (405, "invalid_request_error"),
        (499, "invalid_request_error"),
        (500, "server_error"),
        (502, "server_error"),
    ):
        answered_status(part, status, type)
    note('http_error(404, "m")')
    response = part.http_error(404, "m")
    expect_equal(response.status_code, 404, "the status of http_error without headers")


def complaint(type: str, *way: str | int, **context: Any) -> dict[str, Any]:
    return {"type": type, "loc": ("body", *way), "msg": "It is wrong.", "ctx": context}


def complained(part: ModuleType, *complaints: dict[str, Any]) -> Any:
    """What validation_error makes of these, both written down."""
    shown = ", ".join(f"{{'type': {c['type']!r}, 'loc': {c['loc']}}}" for c in complaints)
    note(f"validation_error([{shown}])")
    error = part.validation_error(list(complaints))
    note(f"    # -> {error!r}")
    return error


def spelled_wrong(param: object) -> str:
    """What is wrong with a parameter's name, if its letters tell."""
    name = str(param)
    if name.startswith("body"):
        return "A client looks for the name in its own JSON: no `body` in front."
    if re.search(r"\.\d", name):
        return "A client looks for the name in its own JSON, and writes indices in brackets."
    return ""


def named(part: ModuleType, way: tuple[str | int, ...], param: str) -> None:
    """A complaint about the value at the end of a way."""
    complaints = [complaint("int_type", *way), complaint("missing", "other")]
    error = complained(part, *complaints)
    kind = type(error).__name__
    expect(isinstance(error, InvalidRequestError), f"it is a {kind}, no InvalidRequestError")
    why = "" if way == ("metadata", "0") else spelled_wrong(error.param)
    expect_equal(error.param, param, f'the parameter for "loc" {("body", *way)}', why=why)
    expect_equal(error.message, f"{param}: It is wrong.", "the message")


@task("8.1")
def test_a_validation_error_names_the_parameter_as_a_client_writes_it(part: ModuleType) -> None:
    """The first complaint becomes an InvalidRequestError about messages[0].content, in these words."""
    for way, param in (
        (("temperature",), "temperature"),
        (("messages", 0, "content"), "messages[0].content"),
        (("prompt", 1, 2), "prompt[1][2]"),
        (("metadata", "0"), "metadata.0"),
        ((".foo",), ".foo"),
    ):
        named(part, way, param)


@task("8.1")
def test_a_body_that_cannot_be_read_has_no_parameter(part: ModuleType) -> None:
    """Where a body is no JSON, or nothing follows "body", param is None and the message is alone."""
    unread, missing = complaint("json_invalid", 17, error="Expecting value"), complaint("missing")
    error = complained(part, unread)
    why = "17 is an offset into the text, not a parameter; a client would look for it in vain."
    why *= "17" in f"{error.param} {error.message}"
    expect_equal(error.param, None, "the parameter for a body that is no JSON", why=why)
    expected = "The body is not valid JSON: Expecting value."
    expect_equal(error.message, expected, "the message for it", why=why)
    error = complained(part, missing)
    why = 'There is no name after "body": the parameter is None, not an empty text.'
    expect_equal(error.param, None, "the parameter for a body that is missing", why=why)
    right = error.message.startswith("The body must be")
    expect(right, f"the message is {error.message!r}, and begins with no `The body must be`")


class Body(BaseModel):
    n: int


def failing_app(part: ModuleType) -> FastAPI:
    app = FastAPI()
    part.install_error_handlers(app)

    @app.get("/{what}")
    async def fail(what: str) -> None:
        raise {
            "full": EngineOverloadedError("full"),
            "stranger": HTTPException(401, "Who are you?", {"WWW-Authenticate": "Bearer"}),
        }[what]

    @app.post("/")
    async def take(body: Body) -> None:
        pass

    return app


@task("8.1")
def test_the_frameworks_own_failures_have_the_same_shape(part: ModuleType) -> None:
    """401, 404, 405 and a body of the wrong type are answered as every other failure."""
    app = failing_app(part)
    for method, path, status, type in (
        ("GET", "/full", 503, "overloaded_error"),
        ("GET", "/stranger", 401, "authentication_error"),
        ("GET", "/a/b", 404, "not_found_error"),
        ("PUT", "/", 405, "invalid_request_error"),
        ("POST", "/", 400, "invalid_request_error"),
    ):
        answer = ask(app, method, path, {"n": "one"})
        expect_equal(answer.status, status, f"the status of {method} {path}")
        error = answer.json().get("error", {})
        keys = sorted(error) if isinstance(error, dict) else error
        expect_equal(keys, ["code", "message", "param", "type"], "the keys of the error", why=SHAPE)
        expect_equal(error["type"], type, f"the type of the error for {method} {path}")
        asked = answer.headers.get("www-authenticate")
        expect_equal(asked, "Bearer" if status == 401 else None, "WWW-Authenticate")


@task("8.1")
@examples(100)
@given(way=STEPS, message=st.text("aé🙂\ud800…", max_size=8), cap=st.integers(-2, 2))
def test_any_complaint_can_be_sent(
    part: ModuleType, way: list[str | int], message: str, cap: int
) -> None:
    """Whatever a complaint quotes and however deep it lies, it is named and can be sent."""
    first = complaint("int_type", *way) | {"msg": message}
    note(f"validation_error([{first}])")
    error = part.validation_error([first])
    param = written(way)
    expect_equal(error.param, param, "the parameter")
    expect_equal(error.message, f"{param}: {message}" if param else message, "the message")
    most = part.MAX_MESSAGE_CHARS
    text = (message + "\ud800") * most
    text = text[: most + cap]
    sent = part.clean(text)
    right = "".join("?" if "\ud800" <= char <= "\udfff" else char for char in text)
    right = right if len(right) <= most else right[: most - 1] + "…"
    expect(sent == right, f"clean is wrong for a text of {len(text)} characters: {text[:20]!r} ...")


def written(way: list[str | int]) -> str | None:
    """The way to a value as Python writes it, step by step."""
    param = ""
    for step in way:
        if isinstance(step, int):
            param = f"{param}[{step}]"
        else:
            param = f"{param}.{step}" if param else step
    return param or None
