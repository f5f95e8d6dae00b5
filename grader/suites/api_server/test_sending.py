"""Task 8.4: answers as server-sent events."""

import asyncio
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grader.kit import Mismatch, examples, expect, expect_equal, expect_raises, note, task
from grader.kit.api import STOP, FakeStream, Wire, borrowed, make_request, scripted
from grader.kit.waiting import run, until, within
from grader.suites.api_server.reading import DONE, events_of, told
from solutions.api_server import ChatReply, TextReply, error_body
from yaie.core.errors import EngineDeadError, EngineOverloadedError, YaieError

NO_STATUS = (
    "Until something is sent the response can have a status of its own; 200 says that all is well."
)


@pytest.fixture(autouse=True)
def _errors_and_leaving_are_other_tasks(part: ModuleType) -> Iterator[None]:
    with borrowed(part.sending, "error_body", "Answering", "until_disconnect"):
        yield


async def send(part: ModuleType, wire: Wire, stream: FakeStream, reply: Any, *first: Any) -> None:
    note("response = EventStream(stream, reply, first); response.send_all(send)")
    response = part.EventStream(stream, reply, list(first))
    await within(response.send_all(wire.send), "the end of send_all")


def sent(part: ModuleType, stream: FakeStream, reply: Any, *first: Any) -> Wire:
    """What a stream that ends well sends."""
    wire = Wire()
    run(send(part, wire, stream, reply, *first))
    return wire


@task("8.4")
def test_usage_comes_last(part: ModuleType) -> None:
    """Usage is sent after all choices if the reply includes it, and not otherwise."""
    for asked in (True, False):
        stream, reply = scripted("a", "b.", usage=asked)
        expected: list[Any] = ["a", "b.", "(stop)"]
        if asked:
            expected.append({"completion_tokens": 2})
        got = told(events_of(sent(part, stream, reply).body))
        what = f"the events with include_usage={asked}"
        expect_equal(got, expected, what, why=usage_out_of_place(got, asked))


def usage_out_of_place(events: list[Any], asked: bool) -> str:
    """What is the matter with the usage among these events, if anything is."""
    places = [at for at, event in enumerate(events) if "completion_tokens" in event]
    if places and not asked:
        return "A client that did not ask takes the chunk without choices for text."
    if asked and not places:
        return "The client has asked for its usage, and no chunk has it."
    if asked and "(stop)" in events[places[0] :]:
        return "Tokens are counted when all are there: behind the last chunk of the last choice."
    return ""


@task("8.4")
def test_an_answer_is_a_start_some_bodies_and_done(part: ModuleType) -> None:
    """send_all sends the status and the headers, each output's chunks, and at last [DONE]."""
    stream, reply = scripted("a", "", "b.")
    wire = sent(part, stream, reply)
    start, *bodies = wire.messages
    expect_equal(start.get("type"), "http.response.start", "the type of the first message")
    expect_equal(start.get("status"), 200, "the status")
    kind = wire.headers.get("content-type", "")
    expect(kind.startswith("text/event-stream"), f"the response is of the type {kind!r}")
    expect_equal(wire.headers.get("cache-control"), "no-cache", "the header Cache-Control")
    types = {body["type"] for body in bodies}
    expect_equal(types, {"http.response.body"}, "the types of the messages that follow")
    expect_equal(told(events_of(wire.body)), ["a", "b.", "(stop)"], "the events before [DONE]")
    expect_equal(
        [body.get("more_body", False) for body in bodies], [True, True, False], "more_body of each",
        why="The server ends the response where more_body is False: only the last may say that.",
    )  # fmt: skip
    why = "Nothing but [DONE] goes with it: the last output must not wait."
    expect_equal(bodies[-1]["body"], part.DONE, "the body of the last message", why=why)


@task("8.4")
def test_the_first_chunks_come_first(part: ModuleType) -> None:
    """The chunks of the output that was taken already are sent, before those of the others."""
    stream, reply = scripted("b.")
    first = TextReply("m", reply.requests).chunks(make_request().says("a"))
    wire = sent(part, stream, reply, *first)
    why = "The first output was awaited to know the status; it is not to be lost."
    expect_equal(
        told(events_of(wire.body)), ["a", "b.", "(stop)"], "the events before [DONE]", why=why
    )


@task("8.4")
def test_an_output_does_not_wait_for_the_next(part: ModuleType) -> None:
    """Each output is sent as soon as it is there."""

    async def test() -> None:
        wire = Wire()
        stream, reply = scripted("a", "b", None)
        response = part.EventStream(stream, reply, [])
        sending = asyncio.ensure_future(response.send_all(wire.send))
        try:
            await until(
                lambda: sending.done() or b'"b"' in wire.body,
                "the text of the second output on the wire, while the third does not come",
            )
        except Mismatch as error:
            late = b'"a"' not in wire.body
            error.why = (
                error.why
                or (
                    "Neither of the two outputs that the stream gave has been sent"
                    if late
                    else "The second output has not been sent, the first has"
                )
                + ": send what there is of an output before you ask the stream for the next."
            )
            raise
        expect(not sending.done(), "send_all ended while the stream had not")
        sending.cancel()

    run(test())


@task("8.4")
def test_an_error_in_mid_answer_is_an_event_before_done(part: ModuleType) -> None:
    """An error after the first output is sent as an event, then [DONE] ends the stream."""
    stream, reply = scripted("a", EngineDeadError("It died."), usage=True)
    wire = Wire()
    why = "The caller must learn how it ended, for the log: the error is raised again."
    with expect_raises(EngineDeadError, "send_all on a stream that fails", why=why):
        run(send(part, wire, stream, reply))
    why = "The status 200 is sent; only an event can still say that the answer is not whole."
    got = told(events_of(wire.body))
    expect_equal(got, ["a", {"error": "engine_dead"}], "the events before [DONE]", why=why)
    last = wire.messages[-1].get("more_body", False)
    expect_equal(last, False, "more_body of the last message", why=DONE)


@task("8.4")
def test_an_accident_in_mid_answer_is_told_without_its_words(part: ModuleType) -> None:
    """An exception that is no YaieError is an event too, and its words stay inside."""
    stream, reply = scripted("a", RuntimeError("/srv/secret"))
    wire = Wire()
    with expect_raises(RuntimeError, "send_all on a stream with an accident"):
        run(send(part, wire, stream, reply))
    why = (
        "The words of an accident may hold a path or a prompt: send error_body, not the exception."
    )
    expect(b"secret" not in wire.body, "the client reads the words of an internal error", why=why)
    got = told(events_of(wire.body))
    expect_equal(got, ["a", {"error": "internal_error"}], "the events before [DONE]", why=why)


@task("8.4")
def test_done_is_sent_whatever_ends_the_stream(part: ModuleType) -> None:
    """[DONE] is sent even if sending is cancelled; the cancellation is not an error to send."""

    async def test() -> None:
        wire = Wire()
        stream, reply = scripted("a", None)
        sending = asyncio.ensure_future(part.EventStream(stream, reply, []).send_all(wire.send))
        await until(lambda: sending.done() or wire.body, "the first chunk")
        note("# send_all is cancelled")
        sending.cancel()
        await asyncio.wait({sending}, timeout=1)
        expect(sending.cancelled(), "send_all swallows its cancellation")
        expect_equal(told(events_of(wire.body)), ["a"], "the events before [DONE]", why=DONE)

    run(test())


@task("8.4")
def test_an_error_before_the_first_output_is_raised(part: ModuleType) -> None:
    """Where the first output fails, streamed_answer closes the stream and raises: no 200 is sent."""
    request = make_request()
    failed = FakeStream([request], [request.fails("not finite")])
    for stream, reply, kind in (
        (*scripted(EngineOverloadedError("full")), EngineOverloadedError),
        (*scripted(RuntimeError("secret")), RuntimeError),
        (failed, TextReply("m", failed.requests), YaieError),
    ):
        note("streamed_answer(stream, reply)")
        with expect_raises(kind, "streamed_answer where the first output fails", why=NO_STATUS):
            run(within(part.streamed_answer(stream, reply), "streamed_answer"))
        why = "Left open, its other requests go on for a client that has its error."
        expect(stream.closed, "the stream is not closed", why=why)


@task("8.4")
def test_a_cancelled_wait_closes_the_stream(part: ModuleType) -> None:
    """If streamed_answer is cancelled while it waits for the first output, it closes the stream."""

    async def test() -> None:
        stream, reply = scripted(None)
        waiting = asyncio.ensure_future(part.streamed_answer(stream, reply))
        for _ in range(5):
            await asyncio.sleep(0)
        expect(
            not waiting.done(), "streamed_answer does not wait for the first output", why=NO_STATUS
        )
        note("# streamed_answer is cancelled")
        waiting.cancel()
        await asyncio.wait({waiting}, timeout=1)
        why = "CancelledError is no Exception: what catches only those leaves the request running."
        expect(stream.closed, "the stream is not closed", why=why)
        expect(waiting.cancelled(), "streamed_answer swallows its cancellation")

    run(test())


@task("8.4")
def test_the_answer_is_an_event_stream(part: ModuleType) -> None:
    """streamed_answer waits for the first output alone, and hands its chunks to an EventStream."""
    stream, reply = scripted("a", "b.")
    response = run(within(part.streamed_answer(stream, reply), "streamed_answer"))
    expect(isinstance(response, part.EventStream), f"it returns a {type(response).__name__}")
    expect(not stream.closed, "the stream was closed before it was read")
    rest = [step.text for step in run(_rest_of(stream))]
    why = "One output shows whether all is well; taking more keeps the client waiting."
    expect_equal(rest, ["b."], "what the stream still has", why=why)
    request = make_request()
    again = FakeStream([request], [request.says("x"), request.says("y", STOP)])
    wire = Wire()
    response = run(part.streamed_answer(again, TextReply("m", again.requests)))
    run(within(response.send_all(wire.send), "the end of send_all"))
    expect_equal(told(events_of(wire.body)), ["x", "y", "(stop)"], "the events before [DONE]")


@task("8.4")
def test_all_chunks_of_the_first_output_are_sent(part: ModuleType) -> None:
    """The first output may make several chunks: all of them are sent, and in one message."""
    request = make_request()
    stream = FakeStream([request], [request.says("x"), request.says("y", STOP)])
    response = run(part.streamed_answer(stream, ChatReply("m", stream.requests)))
    wire = Wire()
    run(within(response.send_all(wire.send), "the end of send_all"))
    deltas = [e["choices"][0]["delta"].get("content") for e in events_of(wire.body)]
    why = "A conversation's first output makes two: the role, and the text that came with it."
    expect_equal(deltas, ["", "x", "y", None], "the contents of the events", why=why)
    count = len(wire.messages) - 2  # the start, and [DONE]
    expect_equal(count, 2, "how many messages the events of two outputs take", why=why)


async def _rest_of(stream: FakeStream) -> list[Any]:
    return [output async for output in stream]


@task("8.4")
@examples(60)
@given(
    texts=st.lists(st.sampled_from(["a", "", "b\n", "\u2028"]), max_size=4),
    fault=st.sampled_from([None, EngineDeadError("dead"), KeyError("secret")]),
    usage=st.booleans(),
)
def test_any_stream(part: ModuleType, texts: list[str], fault: Any, usage: bool) -> None:
    """Whatever a stream gives and however it ends, it becomes these events and one [DONE]."""
    stream, reply = scripted(*texts, fault or "end.", usage=usage)
    wire = Wire()
    if fault is None:
        run(send(part, wire, stream, reply))
        end: list[Any] = ["end.", "(stop)"] + [{"completion_tokens": len(texts) + 1}] * usage
    else:
        with expect_raises(type(fault), "send_all on a stream that fails"):
            run(send(part, wire, stream, reply))
        end = [{"error": error_body(fault)["error"]["code"]}]
    expected = [text for text in texts if text] + end
    expect_equal(told(events_of(wire.body)), expected, "the events before [DONE]")
