"""Task 8.5: answers whose client leaves, or whose stream fails."""

import asyncio
import logging
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from starlette.requests import ClientDisconnect

from grader.kit import expect, expect_equal, expect_raises, note, task
from grader.kit.api import FakeStream, Wire, make_request, scripted
from grader.kit.waiting import run, settle, until, within
from solutions.api_server import TextReply
from yaie.core.errors import EngineDeadError, YaieError

CLOSED = "A stream that is not closed goes on: its requests hold their blocks until their end."
HANDLED = (
    "The client has left or got the error: what gets out of the response is logged as a crash."
)


class Lines(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def log(part: ModuleType) -> Iterator[list[str]]:
    """The lines that the part logs, from INFO up."""
    logger, handler = logging.getLogger(part.__name__), Lines()
    before = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    yield handler.lines
    logger.removeHandler(handler)
    logger.setLevel(before)


async def answering(part: ModuleType, stream: Any, reply: Any, error: BaseException | None) -> None:
    note(f"async with Answering(stream, reply): # {'raises ' + repr(error) if error else 'ends'}")
    async with part.Answering(stream, reply):
        if error is not None:
            raise error


@task("8.5")
def test_however_an_answer_ends_its_stream_is_closed(part: ModuleType, log: list[str]) -> None:
    """Answering closes the stream however its block ends, lets the error go on and logs one line."""
    for error, outcome in (
        (None, "ok"),
        (ClientDisconnect(), "client left"),
        (EngineDeadError("dead"), "failed, engine_dead"),
        (KeyError("secret"), "failed, KeyError"),
    ):
        stream, reply = scripted("a.")
        log.clear()
        if error is None:
            run(answering(part, stream, reply, None))
        else:
            with expect_raises(type(error), f"a block of Answering that raises {error!r}"):
                run(answering(part, stream, reply, error))
        expect(stream.closed, f"the stream is not closed after {error!r}", why=CLOSED)
        count = sum(f"{reply.id} {outcome}" in line for line in log)
        expect_equal(count, 1, f"how many lines `log_answer` wrote that say {outcome!r}")


class AtTheLine(logging.Handler):
    """Notes whether a stream was closed when its line was logged."""

    def __init__(self, stream: FakeStream) -> None:
        super().__init__()
        self.closed: list[bool] = []
        self._stream = stream

    def emit(self, record: logging.LogRecord) -> None:
        self.closed.append(bool(self._stream.closed))


@task("8.5")
@pytest.mark.usefixtures("log")
def test_the_line_is_written_when_all_is_closed(part: ModuleType) -> None:
    """Answering closes the stream first, and then logs."""
    stream, reply = scripted("a.")
    logger, handler = logging.getLogger(part.__name__), AtTheLine(stream)
    logger.addHandler(handler)
    try:
        run(answering(part, stream, reply, None))
    finally:
        logger.removeHandler(handler)
    why = "The line says how long the answer took and what it cost: to the end, aborts included."
    expect_equal(
        handler.closed, [True], "whether the stream was closed when the line came", why=why
    )


@task("8.5")
def test_a_cancelled_answer_closes_its_stream(part: ModuleType) -> None:
    """An answer that is cancelled while it waits closes its stream, and stays cancelled."""

    async def test() -> None:
        stream, reply = scripted("a", None)
        waiting = asyncio.ensure_future(part.whole_answer(stream, reply))
        await settle()
        expect(not waiting.done(), "whole_answer does not wait for the end of its stream")
        expect(not stream.closed, "the stream is closed before it has ended")
        note("# whole_answer is cancelled")
        waiting.cancel()
        await asyncio.wait({waiting}, timeout=1)
        expect(stream.closed, "the stream is not closed", why=CLOSED)
        expect(waiting.cancelled(), "whole_answer swallows its cancellation")

    run(test())


@task("8.5")
def test_a_whole_answer_is_one_json_object(part: ModuleType) -> None:
    """whole_answer gives every output to the reply, and sends its result."""
    stream, reply = scripted("a", "", "b.")
    response = run(within(part.whole_answer(stream, reply), "whole_answer"))
    expect_equal(response.status_code, 200, "the status")
    wire = Wire()
    run(response({"type": "http"}, wire.receive, wire.send))
    kind = wire.headers.get("content-type", "")
    expect(kind.startswith("application/json"), f"the response is of the type {kind!r}")
    got, expected = wire.json(), reply.result()
    expect_equal(got, expected, "the body of the response")
    expect_equal(got["choices"][0]["text"], "ab.", "the text of the answer")
    expect(stream.closed, "the stream is not closed", why=CLOSED)


@task("8.5")
def test_a_whole_answer_that_fails_is_no_answer(part: ModuleType) -> None:
    """If the stream or one of its requests fails the error is raised, and the siblings are aborted."""
    request = make_request()
    failed = FakeStream([request], [request.says("a"), request.fails("not finite")])
    for stream, reply, kind in (
        (*scripted("a", EngineDeadError("dead")), EngineDeadError),
        (failed, TextReply("m", failed.requests), YaieError),
    ):
        note("whole_answer(stream, reply)")
        with expect_raises(kind, "whole_answer whose stream fails"):
            run(within(part.whole_answer(stream, reply), "whole_answer"))
        expect(stream.closed, "the stream is not closed", why=CLOSED)


@task("8.5")
def test_a_failure_does_not_wait_for_the_siblings(part: ModuleType) -> None:
    """One of two choices fails: the error is raised though the other one goes on."""
    requests = [make_request(f"r{index}", n=2, index=index) for index in range(2)]
    stream = FakeStream(requests, [requests[1].says("a"), requests[0].fails("not finite"), None])
    reply = TextReply("m", stream.requests)
    note("whole_answer(stream, reply)")
    why = "Each output goes to the reply as it comes: the caller waits for nothing that is lost."
    with expect_raises(YaieError, "whole_answer whose first choice fails", why=why):
        run(within(part.whole_answer(stream, reply), "whole_answer"))
    expect(stream.closed, "the stream is not closed", why=CLOSED)


def event_stream(part: ModuleType, stream: FakeStream, reply: Any) -> Any:
    """An EventStream with a `send_all` of its own: how chunks are sent is graded elsewhere."""

    class OutputsOnly(part.EventStream):  # type: ignore[name-defined]
        async def send_all(self, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            async for output in stream:
                for _ in reply.chunks(output):
                    pass
                await send(
                    {"type": "http.response.body", "body": output.text.encode(), "more_body": True}
                )
            await send({"type": "http.response.body", "body": b"[DONE]", "more_body": False})

    return OutputsOnly(stream, reply, [])


@task("8.5")
def test_a_stream_that_ends_is_sent_whole_and_closed(part: ModuleType) -> None:
    """An EventStream, called, sends everything (`send_all`) and closes its stream."""
    stream, reply = scripted("a", "b.")
    wire = Wire()
    response = event_stream(part, stream, reply)
    run(within(response({}, wire.receive, wire.send), "the end of an EventStream that was called"))
    expect_equal(wire.body, b"ab.[DONE]", "the bodies that were sent")
    expect(stream.closed, "the stream is not closed", why=CLOSED)
    expect_equal(wire.waiting, 0, "who still waits for a message of the client")


@task("8.5")
def test_a_client_that_leaves_a_stream_ends_it_quietly(part: ModuleType, log: list[str]) -> None:
    """A client that leaves in mid-answer is noticed though no output comes, and nothing is raised."""

    async def test() -> None:
        wire = Wire()
        stream, reply = scripted("a", None)
        serving = asyncio.ensure_future(
            event_stream(part, stream, reply)({}, wire.receive, wire.send)
        )
        await until(lambda: serving.done() or b"a" in wire.body, "the first output on the wire")
        await settle()
        expect(not stream.closed, "the stream is closed before the client has left")
        wire.hang_up()
        await asyncio.wait({serving}, timeout=1)
        why = "Nothing is sent while there is no output, so no send can fail: ask `receive`."
        expect(serving.done(), "it goes on after the client has left", why=why)
        got = serving.exception()
        why = "The client has left, which is no error: it ends here, or it is logged as a crash."
        expect_equal(got, None, "what is raised when the client leaves", why=why)
        expect(stream.closed, "the stream is not closed", why=CLOSED)
        lines = [line for line in log if reply.id in line]
        why = "What ended the answer must pass through Answering, and be suppressed only behind it."
        told = [line for line in lines if "client left" in line]
        expect(told, f"the log does not say that the client left: {lines}", why=why)

    run(test())


@task("8.5")
def test_a_cancelled_stream_stays_cancelled(part: ModuleType) -> None:
    """An EventStream that is cancelled from outside closes its stream, and the cancellation goes on."""

    async def test() -> None:
        wire = Wire()
        stream, reply = scripted("a", None)
        serving = asyncio.ensure_future(
            event_stream(part, stream, reply)({}, wire.receive, wire.send)
        )
        await until(lambda: serving.done() or b"a" in wire.body, "the first output on the wire")
        note("# the task of the EventStream is cancelled")
        serving.cancel()
        await asyncio.wait({serving}, timeout=1)
        expect(stream.closed, "the stream is not closed", why=CLOSED)
        why = "A client that left is one thing; a server that shuts down waits for its tasks to end so."
        expect(serving.cancelled(), "the EventStream swallows its cancellation", why=why)

    run(test())


@task("8.5")
def test_an_error_of_ours_ends_a_stream_quietly(part: ModuleType) -> None:
    """A YaieError ends a streamed answer without a crash; an accident is raised, to be logged."""
    for fault in (EngineDeadError("dead"), RuntimeError("a bug")):
        stream, reply = scripted("a", fault)
        wire = Wire()
        note(f"an EventStream on a stream that raises {fault!r} is called")
        work = event_stream(part, stream, reply)({}, wire.receive, wire.send)
        if isinstance(fault, YaieError):
            raised = run(_raised(within(work, "the end of an EventStream that was called")))
            expect_equal(raised, None, "what is raised after an EngineDeadError", why=HANDLED)
        else:
            why = "An accident is a bug of ours: swallowed, its traceback is never seen."
            with expect_raises(RuntimeError, "an accident in a streamed answer", why=why):
                run(within(work, "the end of an EventStream that was called"))
        expect(stream.closed, f"the stream is not closed after {fault!r}", why=CLOSED)


async def _raised(work: Any) -> Exception | None:
    try:
        await work
    except YaieError as error:
        return error
    return None
