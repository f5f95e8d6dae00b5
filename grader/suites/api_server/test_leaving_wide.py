"""Task 8.5: several choices, large answers, slow closing, and what the work sees."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from types import ModuleType
from typing import Any

import pytest
from starlette.requests import ClientDisconnect

from grader.kit import expect, expect_equal, expect_raises, note, start_script, task
from grader.kit.api import STOP, FakeStream, Wire, make_request, scripted
from grader.kit.waiting import run, settle, within
from grader.suites.api_server.stalling import (
    TAKEN,
    Noting,
    SlowStream,
    let_time_run_out,
    slow,
    two_choices,
)
from grader.suites.api_server.test_leaving import Work, begin
from grader.suites.api_server.test_leaving_answers import event_stream
from yaie.core.errors import EngineDeadError
from yaie.system import json_slices

ENDS = "An answer is complete where its stream ends: a finish_reason is that of one choice."
EVERY = (
    "Every output goes to `reply.add`: one without text has log-probabilities, which an extended reply "
    "needs."
)
LARGE = (
    "`json_response` has a large answer made and written beside the event loop. On it every other "
    "client waits meanwhile."
)
PATIENT = (
    "An answer may take minutes, and the engine has limits of its own. A wait that runs out ends an "
    "answer that is only slow."
)
SEES = (
    "The server keeps in context variables whose request this is. A task has those of whoever makes it, "
    "unless it is given others."
)
tenant: ContextVar[str] = ContextVar("tenant", default="nobody")


@task("8.5")
def test_a_whole_answer_has_every_output_of_every_choice(part: ModuleType) -> None:
    """whole_answer gives all outputs to the reply, also behind the end of a choice and without text."""
    stream, reply = two_choices()
    note("whole_answer(stream, reply)")
    run(within(part.whole_answer(stream, reply), "whole_answer"))
    is_cut = len(reply.taken) < len(TAKEN) and reply.taken == TAKEN[: len(reply.taken)]
    why = ENDS if is_cut else EVERY
    expect_equal(reply.taken, TAKEN, "the outputs that reply.add was given", why=why)
    texts = [choice["text"] for choice in reply.result()["choices"]]
    expect_equal(texts, ["a", "b"], "the texts of the choices", why=ENDS)


@task("8.5")
def test_a_large_answer_is_made_beside_the_event_loop(
    part: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """whole_answer leaves the response to `json_response`, which makes a large one in another thread."""
    request = make_request(prompt=10_000)
    stream = FakeStream([request], [request.says("a", STOP)])
    reply = Noting(stream.requests)
    note("# a prompt of 10,000 tokens")
    note("whole_answer(stream, reply)")
    with ThreadPoolExecutor(
        1
    ) as writer:  # that of `json_slices` may be of a process that was forked
        monkeypatch.setattr(json_slices, "_writer", writer)
        run(within(part.whole_answer(stream, reply), "whole_answer"))
    problem = "reply.result() of a large answer was called on the thread of the event loop"
    expect(reply.thread != threading.get_ident(), problem, why=LARGE)


@task("8.5")
def test_no_wait_of_a_whole_answer_runs_out(part: ModuleType) -> None:
    """However long an output takes, whole_answer waits for it."""

    async def test() -> Any:
        stream, reply = slow("a", "b.")
        note("# a stream that is slow; time runs out wherever a timer is set")
        note("whole_answer(stream, reply)")
        delays = let_time_run_out(part)
        try:
            await within(part.whole_answer(stream, reply), "whole_answer")
        except (TimeoutError, asyncio.TimeoutError):
            problem = f"the wait for an output ends after {max(delays, default=0):g} seconds"
            expect(False, problem, why=PATIENT)
        return reply.taken

    expect_equal(run(test()), ["r0: a", "r0: b."], "the outputs that reply.add was given")


@task("8.5")
def test_a_stream_that_is_slow_to_close_is_closed(part: ModuleType) -> None:
    """Answering returns when the stream has been closed, not while that goes on."""

    async def test(error: Exception | None) -> SlowStream:
        stream, reply = slow("a.")
        ends = f"raises {error!r}" if error else "ends"
        note(f"async with Answering(stream, reply): # {ends}; stream.aclose() takes some turns")
        try:
            async with part.Answering(stream, reply):
                if error is not None:
                    raise error
        except EngineDeadError:
            pass
        return stream

    for error in (None, EngineDeadError("dead")):
        start_script()
        stream = run(test(error))
        problem = "Answering has returned, and stream.aclose() has not ended"
        problem = problem if stream.is_closing else "stream.aclose() has not begun"
        why = "Await it: until it has ended the requests hold their blocks."
        expect(stream.closed, problem, why=why)


@task("8.5")
def test_work_that_has_failed_counts_too(part: ModuleType) -> None:
    """If work has failed when the client leaves, its error is raised."""

    async def fails() -> None:
        raise EngineDeadError("dead")

    async def test() -> None:
        wire = Wire()
        wire.hang_up()
        await within(begin(part, wire, fails()), "until_disconnect, whose work failed at once")

    why = "If both end at the same time the work counts, however it ended."
    with expect_raises(
        EngineDeadError, "until_disconnect whose work fails as the client leaves", why=why
    ):
        run(test())


class Chatty(Wire):
    """A server that says things that this lab knows nothing of."""

    WORDS = ("http.request", "http.response.debug", "lifespan.startup", "")

    def __init__(self) -> None:
        super().__init__()
        self._words = list(self.WORDS)

    async def receive(self) -> dict[str, Any]:
        if self._words:
            await asyncio.sleep(0)
            return {"type": self._words.pop()}
        return await super().receive()


@task("8.5")
def test_a_message_of_any_other_type_is_no_disconnect(part: ModuleType) -> None:
    """A client has left when a message has the type "http.disconnect", and by no other type."""

    async def test() -> None:
        wire, work = Chatty(), Work()
        note(f"# messages of the types {', '.join(map(repr, Chatty.WORDS))} come")
        waiting = begin(part, wire, work.run())
        await settle()
        why = "Servers have messages of more types than one: compare with the one that counts."
        expect(not waiting.done(), "it ended at a message that was no disconnect", why=why)
        wire.hang_up()
        with expect_raises(ClientDisconnect, "until_disconnect when the client leaves"):
            await within(waiting, "ClientDisconnect after other messages")

    run(test())


@task("8.5")
def test_a_broken_connection_of_ours_is_an_accident(part: ModuleType) -> None:
    """Only ClientDisconnect and a YaieError end an EventStream quietly: an OSError is raised."""
    for fault in (OSError("a bug"), ValueError("a bug")):
        stream, reply = scripted("a", fault)
        wire = Wire()
        start_script()
        note(f"an EventStream on a stream that raises {fault!r} is called")
        why = "An accident is a bug of ours: swallowed, its traceback is never seen."
        with expect_raises(type(fault), f"an EventStream whose stream raises {fault!r}", why=why):
            serving = event_stream(part, stream, reply)({}, wire.receive, wire.send)
            run(within(serving, "the end of an EventStream that was called"))
        expect(stream.closed, f"the stream is not closed after {fault!r}")


@task("8.5")
def test_work_sees_the_context_of_its_caller(part: ModuleType) -> None:
    """Context variables have the same values in the work as around until_disconnect."""

    async def work() -> str:
        return tenant.get()

    async def test() -> Any:
        tenant.set("somebody")
        note('tenant.set("somebody")')
        note("until_disconnect(receive, work), whose work returns tenant.get()")
        return await within(part.until_disconnect(Wire().receive, work()), "until_disconnect")

    expect_equal(run(test()), "somebody", "the context variable that the work sees", why=SEES)
