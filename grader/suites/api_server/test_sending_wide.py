"""Task 8.4: texts that look like JSON, several choices, long streams, and clients side by side."""

import asyncio
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from grader.kit import expect, expect_equal, expect_raises, note, start_script, task
from grader.kit.api import STOP, FakeStream, Wire, borrowed, make_request, scripted
from grader.kit.waiting import run, settle, within
from grader.suites.api_server.reading import data_of, events_of, told
from grader.suites.api_server.stalling import TAKEN, let_time_run_out, slow, two_choices
from grader.suites.api_server.test_sending import send
from solutions.api_server import TextReply, error_body

MANY = 60
ENDS = "A stream is over where its iteration ends: a finish_reason is that of one choice."
EVERY = (
    "Every output goes to `reply.chunks`: one without text has log-probabilities, which an extended "
    "reply needs."
)
EACH = "One message for each output, at once: whoever reads the stream sees each token as it comes."
PATIENT = (
    "A request may be queued for minutes, and the engine has limits of its own. A wait that runs out "
    "ends an answer that is only slow."
)
APART = "A slow client takes its messages slowly. Nothing of one stream is shared with another."


@pytest.fixture(autouse=True)
def _errors_and_leaving_are_other_tasks(part: ModuleType) -> Iterator[None]:
    with borrowed(part.sending, "error_body", "Answering", "until_disconnect"):
        yield


@task("8.4")
def test_a_text_that_looks_like_json_stays(part: ModuleType) -> None:
    """Commas, colons, braces and the words NaN and Infinity may stand in a text."""
    for text in ("a, b: c,  d", '{"a": [1, 2]}', "NaN", "-Infinity", "null, true", "data: [DONE]"):
        note(f"event({{'text': {text!r}}})")
        got = data_of(part.event({"text": text}).removesuffix(b"\n\n"))
        why = "What looks like JSON in a text is text: only the encoder knows which is which."
        expect_equal(got, {"text": text}, "what a client reads", why=why)


@task("8.4")
def test_nan_is_found_at_any_depth(part: ModuleType) -> None:
    """NaN and infinity raise ValueError wherever they are: log-probabilities lie deep in a chunk."""
    for number in (float("nan"), float("inf"), -float("inf")):
        data = {"choices": [{"logprobs": {"content": [{"logprob": number}]}}]}
        note(f"event({data})")
        with expect_raises(ValueError, f"an event that holds {number} in a list in a dict"):
            part.event(data)


@task("8.4")
def test_a_stream_goes_on_behind_the_end_of_a_choice(part: ModuleType) -> None:
    """Every output of every choice is sent, and the usage once, behind the last of them."""
    stream, reply = two_choices(usage=True)
    wire = Wire()
    run(send(part, wire, stream, reply))
    is_cut = len(reply.taken) < len(TAKEN) and reply.taken == TAKEN[: len(reply.taken)]
    why = ENDS if is_cut else EVERY
    expect_equal(reply.taken, TAKEN, "the outputs that reply.chunks was given", why=why)
    right = ["a", "(stop)", "b", "(stop)", {"completion_tokens": 5}]
    expect_equal(told(events_of(wire.body)), right, "the events before [DONE]", why=ENDS)


@task("8.4")
def test_each_output_of_a_long_stream_is_a_message(part: ModuleType) -> None:
    """However long a stream is, each output is sent in a message of its own."""
    request = make_request()
    steps = [*(request.says(f"{number}") for number in range(MANY)), request.says("", STOP)]
    stream, wire = FakeStream([request], steps), Wire()
    run(send(part, wire, stream, TextReply("m", stream.requests)))
    start_script()
    note(f"# a stream of {MANY} outputs with text and a last one without")
    counts = [message["body"].count(b"\n\n") for message in wire.messages[1:]]
    where = next((at for at, number in enumerate(counts) if number != 1), len(counts))
    problem = f"message {where} of the body holds {[*counts, 0][where]} events"
    expect(where == len(counts), problem, why=EACH)
    expect_equal(len(counts), MANY + 2, "messages of the body, that of [DONE] included", why=EACH)


@task("8.4")
def test_the_headers_are_those_of_the_response(part: ModuleType) -> None:
    """The start has all of `self.raw_headers`: proxies are told to hold nothing back."""
    stream, reply = scripted("a.")
    response, wire = part.EventStream(stream, reply, []), Wire()
    run(within(response.send_all(wire.send), "the end of send_all"))
    wanted = {name.decode().lower(): value.decode() for name, value in response.raw_headers}
    expect_equal(wire.headers, wanted, "the headers of http.response.start")


@task("8.4")
def test_an_error_event_is_the_error_object(part: ModuleType) -> None:
    """Whatever raises in mid-answer, a broken connection of the server's own too, is an event."""
    for fault in (OSError("/srv/secret"), TimeoutError("secret"), ValueError("secret")):
        stream, reply = scripted("a", fault)
        wire = Wire()
        start_script()
        with expect_raises(type(fault), f"send_all on a stream that raises {fault!r}"):
            run(send(part, wire, stream, reply))
        events = events_of(wire.body)
        what = f"the last event of a stream that raises {fault!r}"
        expect_equal(events[-1], error_body(fault), what)


@task("8.4")
def test_no_wait_of_a_stream_runs_out(part: ModuleType) -> None:
    """However long an output takes, the first one or a later one, it is waited for."""

    async def test(*, later: bool) -> bytes:
        stream, reply = slow("a", "b.")
        wire = Wire()
        note("# a stream that is slow; time runs out wherever a timer is set")
        delays = let_time_run_out(part)
        try:
            if later:
                response = part.EventStream(stream, reply, [])
            else:
                note("streamed_answer(stream, reply)")
                response = await within(part.streamed_answer(stream, reply), "streamed_answer")
            note("response.send_all(send)")
            await within(response.send_all(wire.send), "the end of send_all")
        except (TimeoutError, asyncio.TimeoutError):
            wait = "a later output" if later else "the first output"
            problem = f"the wait for {wait} ends after {max(delays, default=0):g} seconds"
            expect(False, problem, why=PATIENT)
        return wire.body

    for later in (True, False):
        start_script()
        body = run(test(later=later))
        expect(b'"b."' in body, "the text of the second output was not sent", why=PATIENT)


class Stuck(Wire):
    """A client that takes the first message, and then none."""

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "http.response.body":
            note("# this client takes no more")
            await asyncio.Event().wait()


@task("8.4")
def test_a_client_that_reads_nothing_holds_up_no_other(part: ModuleType) -> None:
    """Two streams are sent side by side, each with its own events."""

    async def test() -> Any:
        stuck, wire = Stuck(), Wire()
        first = part.EventStream(*scripted("x", "y."), [])
        second = part.EventStream(*scripted("a", "b."), [])
        note("# one client's response.send_all(send), and at the same time another's")
        waiting = asyncio.ensure_future(first.send_all(stuck.send))
        await settle()
        sending = asyncio.ensure_future(second.send_all(wire.send))
        await settle(100)
        is_done = sending.done()
        for each in (waiting, sending):
            each.cancel()
        await asyncio.wait({waiting, sending}, timeout=1)
        problem = "the second client's stream does not end while the first client takes nothing"
        expect(is_done, problem, why=APART)
        return told(events_of(wire.body))

    got = run(test())
    expect_equal(got, ["a", "b.", "(stop)"], "the events of the second client", why=APART)
