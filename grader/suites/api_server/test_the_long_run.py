"""Beyond one call: answers that stay, nothing left behind, a thousand outputs, empty texts."""

from types import ModuleType
from typing import Any

from grader.kit import expect, expect_equal, note, start_script, task
from grader.kit.api import STOP, FakeService, FakeStream, Wire, borrowed, make_request, scripted
from grader.kit.memory import expect_keeps_nothing
from grader.kit.standing import expect_results_stand
from grader.kit.storage import expect_nothing_is_kept
from grader.kit.waiting import run, within
from grader.suites.api_server.apps import borrowed_for_routes
from grader.suites.api_server.reading import events_of, told
from grader.suites.api_server.test_errors import complaint, expect_shape, shape
from grader.suites.api_server.test_errors import told as told_by
from solutions.api_server import TextReply
from solutions.api_server.schemas import CompletionRequest
from yaie.core.errors import InvalidRequestError

MANY = 1001
LONG = "An answer has as many outputs as it has tokens, and a call as many requests as prompts."


@task("8.1")
def test_nothing_to_say_is_said(part: ModuleType) -> None:
    """An empty message is a message: the error object has its four keys, and a text of no characters is
    one."""
    note('clean(""), error_object("", type="t"), error_object("m", type=""), http_error(404, "")')
    expect_equal(part.clean(""), "", "clean of a text without characters")
    got = part.error_object("", type="t")
    expect_shape(got, shape("", "t"), "an error without words")
    expect_shape(part.error_object("m", type=""), shape("m", ""), "an error of no type")
    got = part.error_object("m", type="t", param="")
    expect_shape(got, shape("m", "t", ""), "an error whose param is a text of no characters")
    right = shape("", "not_found_error")
    expect_shape(told_by(part.http_error(404, "")), right, "the body of http_error(404, '')")


@task("8.1")
def test_types_are_compared_by_their_letters(part: ModuleType) -> None:
    """The type of a complaint is known by its letters, also where it is another string object."""
    first = complaint("_".join(["json", "invalid"]), 17) | {"ctx": {"error": "x"}}
    why = (
        "An offset is no parameter. Compare strings with ==: `is` asks whether two objects are one."
    )
    note("validation_error([{'type': \"_\".join([\"json\", \"invalid\"]), 'loc': ('body', 17)}])")
    expect_equal(part.validation_error([first]).param, None, "the parameter", why=why)


@task("8.1")
def test_errors_leave_nothing_behind(part: ModuleType) -> None:
    """A failure that was told is over: its objects are made for their call, and nothing is kept."""
    calls = [lambda n=n: part.error_object(f"m{n}", type="t", param=f"p{n}") for n in (1, 2, 3)]
    expect_results_stand(calls, "error_object")
    error, first = InvalidRequestError("m", param="n"), complaint("int_type", "n")

    def call() -> None:
        part.clean("m" * 600)
        part.error_body(error)
        part.error_response(error)
        part.http_error(404, "m")
        part.validation_error([first])

    start_script()
    expect_keeps_nothing(call, "making error objects and responses")


@task("8.3")
def test_chunks_leave_nothing_behind(part: ModuleType) -> None:
    """Chunks that were made stay what they were, and a reply that was dropped is gone."""

    def stream(number: int) -> Any:
        request = make_request(f"r{number}")
        reply = part.ChatReply("m", [request.submitted], include_usage=True)
        outputs = request.says(f"text {number}"), request.says("", STOP)
        found = [list(reply.chunks(output)) for output in outputs]
        return [*found, reply.usage_chunk()["usage"]]

    expect_results_stand([lambda n=n: stream(n) for n in (1, 2, 3)], "chunks and usage_chunk")  # type: ignore[misc]
    start_script()
    expect_keeps_nothing(lambda: stream(1), "chunks and usage_chunk, of a reply each,")


@task("8.4")
def test_a_stream_of_a_thousand_outputs(part: ModuleType) -> None:
    """A stream is sent to its end, however long it is; an event is made for its call."""
    request = make_request()
    steps = [*(request.says("a") for _ in range(MANY - 1)), request.says("b", STOP)]
    note(f"# a stream of {MANY} outputs")
    stream, wire = FakeStream([request], steps), Wire()
    response = part.EventStream(stream, TextReply("m", stream.requests), [])
    run(within(response.send_all(wire.send), "the end of send_all"))
    got = told(events_of(wire.body))
    expect_equal(
        (len(got), got[-2:]), (MANY + 1, ["b", "(stop)"]), "events, and the last", why=LONG
    )
    data = {"a": 1}
    start_script()
    expect_keeps_nothing(lambda: part.event(data), "event")


def answers(part: ModuleType, pieces: int) -> bytes:
    """The body of a whole answer of so many outputs and one more; a streamed one is sent as well, whose
    events are another task's."""

    async def both() -> bytes:
        stream, reply = scripted(*["a"] * pieces, "b.")
        whole = await part.whole_answer(stream, reply)
        stream, reply = scripted("a", "b.")
        response, wire = await part.streamed_answer(stream, reply), Wire()
        await response({}, wire.receive, wire.send)
        return bytes(whole.body)

    start_script()
    found: bytes = run(both())
    return found


@task("8.5")
def test_answers_of_many_clients(part: ModuleType) -> None:
    """Of a client that was answered nothing is left: no stream, no task, no text."""
    with borrowed(part.sending, "error_body", "send_events"):
        whole = answers(part, MANY)
        expect(whole.count(b"a") >= MANY, f"the whole answer has {len(whole)} bytes", why=LONG)
        expect_nothing_is_kept({"a whole answer and a streamed one": lambda: answers(part, 1)})


@task("8.6")
def test_requests_leave_nothing_behind(part: ModuleType) -> None:
    """Of a request that was answered the endpoints keep nothing."""

    def call() -> None:
        start_script()
        service, body = FakeService(), CompletionRequest.model_validate({"prompt": "abc"})
        run(part.routes.answer_text(service, body))

    with borrowed_for_routes(part):
        expect_nothing_is_kept({"answer_text": call})


@task("8.6")
def test_cards_leave_nothing_behind(part: ModuleType) -> None:
    """Each card is an object of its own, and asking for one keeps nothing."""
    service = FakeService()
    calls = [lambda n=n: part.model_card(service, n) for n in (1000, 2000, 3000)]
    expect_results_stand(calls, "model_card")

    def call() -> None:
        part.check_model(service, None)
        part.model_card(service, 5)

    start_script()
    expect_keeps_nothing(call, "model_card and check_model")
