"""Task 8.1 with any text, any status and any way to a value."""

from copy import deepcopy
from types import ModuleType

from grader.kit import expect_equal, note, start_script, task
from grader.suites.api_server.test_errors import BY_STATUS, complaint, named, told
from yaie.core.errors import EngineOverloadedError, InvalidRequestError

ALL_ELSE = (
    "Half a pair and the length are all that is changed. A client compares what is quoted with what it "
    "has sent, white space included."
)
TEXTS = (
    "two  spaces",
    " in front, and behind ",
    "a line\nand another\r\n",
    "\ta tab, \x00 and \x1b",
    "e\u0301, a letter with an accent of its own",
)
"""Whatever tidies a text changes one of them."""


@task("8.1")
def test_a_text_that_can_be_sent_stays(part: ModuleType) -> None:
    """clean leaves white space, control characters and accents as they were."""
    for text in TEXTS:
        note(f"clean({text!r})")
        expect_equal(part.clean(text), text, "a text that fits and can be encoded", why=ALL_ELSE)
        error = part.error_object(text, type="t", param=text)["error"]
        expect_equal(error["message"], text, "the message of an error object", why=ALL_ELSE)
        expect_equal(error["param"], text, "the param of an error object", why=ALL_ELSE)


@task("8.1")
def test_a_text_is_cut_at_any_character(part: ModuleType) -> None:
    """A long text keeps its first MAX_MESSAGE_CHARS - 1 characters, also where a word ends there."""
    most = part.MAX_MESSAGE_CHARS
    why = (
        "A text that is cut has MAX_MESSAGE_CHARS characters: where words end makes no difference."
    )
    for shift in range(3):
        text = "-" * shift + "ab " * most
        note(f"clean('{'-' * shift}' + 'ab ' * {most})")
        what = "the last 8 characters of a text of words that was cut"
        right = text[: most - 1] + "…"
        expect_equal(part.clean(text)[-8:], right[-8:], what, why=why)
        expect_equal(len(part.clean(text)), most, "the length of a text of words, cut", why=why)


@task("8.1")
def test_every_status_has_its_type(part: ModuleType) -> None:
    """http_error knows three types by TYPES; all others go by whether the status is below 500."""
    types = {401: "authentication_error", 403: "permission_error", 404: "not_found_error"}
    for status in range(400, 600):
        right = types.get(status, "invalid_request_error" if status < 500 else "server_error")
        got = told(part.http_error(status, "m"))["error"]["type"]
        expect_equal(got, right, f"the type of http_error({status}, 'm')", why=BY_STATUS)


class TooMany(EngineOverloadedError):
    """An overload with a status of its own."""

    status = 429


@task("8.1")
def test_an_error_of_another_kind_has_its_own_status(part: ModuleType) -> None:
    """The status of a response is the error's own, also of one that may be tried again."""
    note("class TooMany(EngineOverloadedError): status = 429")
    note('error_response(TooMany("m"))')
    response = part.error_response(TooMany("m"))
    why = "Each class of YaieError says its status: read it from the error."
    expect_equal(response.status_code, 429, "the status for a TooMany", why=why)
    got = response.headers.get("retry-after")
    expect_equal(got, part.RETRY_AFTER_SECONDS, "Retry-After of a TooMany, an overload")


@task("8.1")
def test_any_way_is_named_whole(part: ModuleType) -> None:
    """A key may be called body, an index may be large and a way long: the parameter has all of it."""
    long = "k" * 150
    for way, param in (
        (("metadata", "body"), "metadata.body"),
        (("prompt", 999, 1000), "prompt[999][1000]"),
        (("prompt", 70_000), "prompt[70000]"),
        (("metadata", long), f"metadata.{long}"),
    ):
        start_script()
        named(part, way, param)


@task("8.1")
def test_the_complaints_are_read_only(part: ModuleType) -> None:
    """validation_error changes nothing in the complaints, which may be any sequence."""
    complaints = [complaint("int_type", "n"), complaint("missing", "other")]
    before = deepcopy(complaints)
    note("validation_error(complaints), a list of 2")
    part.validation_error(complaints)
    why = "They are the framework's, which may log them afterwards."
    expect_equal(complaints, before, "the complaints afterwards", why=why)
    note("validation_error(tuple(complaints))")
    error: InvalidRequestError = part.validation_error(tuple(before))
    expect_equal(error.param, "n", "the parameter of complaints in a tuple")
