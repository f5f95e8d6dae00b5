"""Task 8.1 for errors that no table knows, for complaints as pydantic gives them, and for many texts."""

from copy import deepcopy
from itertools import count
from types import ModuleType
from typing import Any

from fastapi.responses import JSONResponse

from grader.kit import expect_equal, note, start_script, task
from grader.kit.apart import expect_unchanged
from grader.kit.memory import expect_keeps_nothing
from grader.suites.api_server.test_errors import complaint, expect_shape, shape, told
from yaie.core.errors import (
    EngineOverloadedError,
    EngineUnavailableError,
    InvalidRequestError,
    RequestTimeoutError,
    YaieError,
)

OWN_WORDS = (
    "Each class of YaieError says its status, type and code, and others will be written: read them from "
    "the error."
)
RETRY = (
    "Retry-After is for the classes EngineOverloadedError and EngineUnavailableError and what derives "
    "from them, whatever their status and code."
)
QUOTED = (
    "A message and a parameter may quote a client: both go through `clean`, whichever function makes "
    "the error object."
)
HEADERS = "A response of http_error has the headers that it was given, and no others of its own."
FRESH = "Who gets an object or a response may add to it: each call makes its own."
FIRST = "The first complaint is the one to report, whatever its type."
INPUT = (
    "What a client sent may be a prompt of megabytes, and a log has the message: the message is what "
    "`complaint` says and no more."
)


class LostError(YaieError):
    """A 503 that does not pass by itself."""

    status, type, code = 503, "server_error", "lost"


class CrowdedError(EngineOverloadedError):
    """An overload under a code of its own."""

    status, type, code = 429, "rate_limit_error", "crowded"


class SleepyError(EngineUnavailableError):
    """Passes by itself, under a code of its own."""

    code = "asleep"


class TeapotError(InvalidRequestError):
    """A status that no other error has."""

    status, type, code = 418, "teapot_error", "teapot"


@task("8.1")
def test_an_error_of_any_class_is_told_as_it_says(part: ModuleType) -> None:
    """Status, type and code are the error's own, and Retry-After goes by its class."""
    for error in (LostError("m"), CrowdedError("m"), SleepyError("m"), TeapotError("m", param="n"),
                  RequestTimeoutError("m")):  # fmt: skip
        kind = type(error).__name__
        start_script()
        note(f"class {kind}({type(error).__mro__[1].__name__}): status, type, code = "
             f"{error.status}, {error.type!r}, {error.code!r}")  # fmt: skip
        note(f'error_response({kind}("m"))')
        response = part.error_response(error)
        right = shape("m", error.type, error.param, error.code)
        expect_equal(response.status_code, error.status, f"the status for a {kind}", why=OWN_WORDS)
        expect_shape(told(response), right, f"the body for a {kind}", why=OWN_WORDS)
        may_retry = isinstance(error, EngineOverloadedError | EngineUnavailableError)
        got, wanted = response.headers.get("retry-after"), part.RETRY_AFTER_SECONDS
        what = f"Retry-After of a {kind}"
        expect_equal(got, wanted if may_retry else None, what, why=RETRY)


@task("8.1")
def test_whatever_quotes_a_client_is_cleaned(part: ModuleType) -> None:
    """Half a pair and a long text are cleaned in every error object, whichever function makes it."""
    most = part.MAX_MESSAGE_CHARS
    for what, text, right in (
        ("half a pair", "a\ud800", "a?"),
        (f"{2 * most} characters", "x" * 2 * most, "x" * (most - 1) + "…"),
    ):
        error = InvalidRequestError(text, param=text)
        start_script()
        note(f"# text: {what}; error = InvalidRequestError(text, param=text)")
        note("error_body(error)")
        body = part.error_body(error)["error"]
        note("http_error(404, text).body, as JSON")
        found = {"message": body["message"], "param": body["param"]}
        found["message of http_error"] = read(part.http_error, 404, text)["error"]["message"]
        wrong = [name for name, value in found.items() if value != right]
        expect_equal(wrong, [], f"what still has {what}, not cleaned", why=QUOTED)


def read(http_error: Any, status: int, text: str) -> Any:
    """The body of http_error; of one that cannot be encoded the text as it is."""
    try:
        return told(http_error(status, text))
    except UnicodeEncodeError:
        return {"error": {"message": text}}


@task("8.1")
def test_only_half_a_pair_becomes_a_question_mark(part: ModuleType) -> None:
    """Each half of a pair, from U+D800 to U+DFFF, becomes "?"; no other character does."""
    for code in (0xD800, 0xD801, 0xDABC, 0xDBFF, 0xDC00, 0xDEAF, 0xDFFF):
        note(f"clean('a\\u{code:04x}b')")
        expect_equal(part.clean(f"a{chr(code)}b"), "a?b", f"clean of a text with U+{code:04X}")
    for code in (0xD7FF, 0xE000, 0xFFFD, 0x1F600):
        note(f"clean(chr(0x{code:X}))")
        why = "This one can be encoded, and stays."
        expect_equal(part.clean(chr(code)), chr(code), f"clean of U+{code:04X}", why=why)


@task("8.1")
def test_http_error_has_the_headers_it_was_given(part: ModuleType) -> None:
    """http_error adds no header, whatever the status, and leaves the caller's dict as it was."""
    plain = {*JSONResponse({}).headers}
    for status in (400, 401, 413, 429, 503):
        for given in (None, {"X-Why": "because"}):
            headers = None if given is None else dict(given)
            start_script()
            note(f'http_error({status}, "m", {given})')
            response = part.http_error(status, "m", headers)
            right = plain | ({"x-why"} if given else set())
            what = f"headers of http_error({status}, 'm', {given})"
            expect_equal(sorted({*response.headers}), sorted(right), what, why=HEADERS)
            expect_unchanged(headers, given, "the headers that http_error was given")


def given_by_pydantic(type: str, *way: str | int, **context: Any) -> dict[str, Any]:
    """A complaint with all that pydantic puts into one."""
    more = {"input": "a long secret prompt", "url": f"https://errors.pydantic.dev/2/v/{type}"}
    return complaint(type, *way, **context) | more


@task("8.1")
def test_a_complaint_with_all_that_pydantic_says(part: ModuleType) -> None:
    """Only `json_invalid` has an offset; what was sent, and pydantic's own words, are not passed on."""
    for type, context in (
        ("value_error", {"error": ValueError("no")}),
        ("json_type", {}),
        ("string_type", {}),
    ):
        first = given_by_pydantic(type, "messages", 0, **context)
        start_script()
        note(f"validation_error([{first}])")
        error = part.validation_error([first])
        expect_equal(error.param, "messages[0]", f"the parameter of a complaint of type {type}")
        why = INPUT if "secret" in error.message or "http" in error.message else ""
        expect_equal(error.message, "messages[0]: It is wrong.", "the message", why=why)
        why = "It is one of our errors: clients know the codes of those, and none of pydantic's."
        expect_equal(error.code, InvalidRequestError.code, "the code of the error", why=why)
    complaints = [given_by_pydantic("extra_forbidden", "x"), given_by_pydantic("missing", "y")]
    for first, second in (complaints, complaints[::-1]):
        start_script()
        note(f"validation_error([{first}, {second}])")
        got = part.validation_error([first, second]).param
        expect_equal(got, first["loc"][1], "the parameter of two complaints", why=FIRST)


@task("8.1")
def test_each_failure_has_objects_of_its_own(part: ModuleType) -> None:
    """What a caller adds to an object or a response is in no other."""
    error = InvalidRequestError("m", param="n")
    for what, make in (
        ("error_object", lambda: part.error_object("m", type="t")),
        ("error_body of an accident", lambda: part.error_body(KeyError("k"))),
        ("error_body of an error of ours", lambda: part.error_body(error)),
    ):
        first = make()
        right = deepcopy(first)
        note(f"{what}, whose result the caller changes, and once more")
        first["error"]["message"], first["added"] = "other words", True
        expect_equal(make(), right, f"{what}, asked for again", why=FRESH)
    for what, respond in (
        ("an accident", lambda: part.error_response(KeyError("k"))),
        ("an error of ours", lambda: part.error_response(error)),
        ("http_error", lambda: part.http_error(404, "m")),
    ):
        first = respond()
        names = sorted(first.headers)
        note(f"the response to {what}, to which the caller adds a header, and once more")
        first.headers["X-Added"] = "1"
        got = sorted(respond().headers)
        expect_equal(got, names, f"the headers of the next response to {what}", why=FRESH)


@task("8.1")
def test_texts_leave_nothing_behind(part: ModuleType) -> None:
    """Another text in each call: none of them is kept."""
    numbers = count()

    def call() -> None:
        text = f"{next(numbers):09} " * 30
        part.clean(text)
        part.error_object(text, type="t", param=text)
        part.error_body(InvalidRequestError(text))

    note("# clean, error_object and error_body, each time with a text of 300 characters of its own")
    expect_keeps_nothing(call, "clean, error_object and error_body of new texts")
