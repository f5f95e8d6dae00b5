"""Task 8.4: outputs without text, streams without tokens, and how often an event is made."""

import asyncio
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from grader.kit import expect, expect_equal, note, task
from grader.kit.api import STOP, FakeStream, Wire, borrowed, make_request, scripted
from grader.kit.waiting import run, settle, within
from grader.suites.api_server.reading import events_of, told
from grader.suites.api_server.test_sending import send
from solutions.api_server import TextReply

HELD_BACK = (
    "The first output shows that all is well. Its text may be held back, for a stop string: the client "
    "gets its status now."
)


@pytest.fixture(autouse=True)
def _errors_and_leaving_are_other_tasks(part: ModuleType) -> Iterator[None]:
    with borrowed(part.sending, "error_body", "Answering", "until_disconnect"):
        yield


@task("8.4")
def test_the_first_output_may_have_no_text(part: ModuleType) -> None:
    """streamed_answer returns with the first output, also if it makes no chunk."""

    async def test() -> list[Any]:
        stream, reply = scripted("", "b.", None)
        note("streamed_answer(stream, reply)")
        waiting = asyncio.ensure_future(part.streamed_answer(stream, reply))
        await settle()
        expect(
            waiting.done(), "streamed_answer waits on: the first output has no text", why=HELD_BACK
        )
        taken = reply.usage()["completion_tokens"]
        expect_equal(taken, 1, "outputs that were taken before it returned", why=HELD_BACK)
        wire = Wire()
        sending = asyncio.ensure_future(waiting.result().send_all(wire.send))
        await settle()
        sending.cancel()
        await asyncio.wait({sending}, timeout=1)
        found: list[Any] = told(events_of(wire.body))
        return found

    expect_equal(run(test()), ["b.", "(stop)"], "the events before [DONE]")


@task("8.4")
def test_usage_of_nothing_is_sent_too(part: ModuleType) -> None:
    """A stream whose request ended without a token has its usage chunk, if the reply includes it."""
    request = make_request()
    stream = FakeStream([request], [request.says("", STOP, tokens=0)])
    wire = Wire()
    run(send(part, wire, stream, TextReply("m", stream.requests, include_usage=True)))
    why = "The client has asked for its usage, and waits for it: 0 is a count like any other."
    expected = ["(stop)", {"completion_tokens": 0}]
    expect_equal(told(events_of(wire.body)), expected, "the events before [DONE]", why=why)


class Watched(dict[str, Any]):
    """Counts how often it is gone through to be written as JSON."""

    times = 0

    def items(self) -> Any:
        """As dict's."""
        self.times += 1
        return super().items()


@task("8.4")
def test_an_event_is_made_once(part: ModuleType) -> None:
    """send_events writes the JSON of each event one time."""
    events, wire = [Watched(a=1), Watched(b=2)], Wire()
    note("send_events(send, iter([{'a': 1}, {'b': 2}]))")
    run(within(part.sending.send_events(wire.send, iter(events)), "send_events"))
    expect_equal([*map(dict, events_of(wire.body + part.DONE))], [{"a": 1}, {"b": 2}], "the events")
    times = max(event.times for event in events)
    why = "JSON is most of what an event costs, and there is one for each token of each stream."
    expect(times <= 1, f"each event is written as JSON {times} times", why=why)
