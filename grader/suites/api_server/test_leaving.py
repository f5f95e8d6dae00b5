"""Task 8.5: work that is raced against the client."""

import asyncio
from collections.abc import Callable, Coroutine
from types import ModuleType
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import ClientDisconnect

from grader.kit import examples, expect, expect_equal, expect_raises, note, task
from grader.kit.api import Wire
from grader.kit.waiting import run, settle, within
from yaie.core.errors import EngineDeadError

QUEUED = "A request may be queued for minutes: once its client has left, it must hold no place."
LEFT_BEHIND = (
    "What still runs afterwards reads messages, or blocks, that belong to another request by then."
)
CLEANING = "cancelled, and still cleaning up"


class Work:
    """What a client waits for: it ends when it is told to, and tells how it ended.

    slow: how many turns it needs to clean up.
    """

    def __init__(self, slow: int = 0) -> None:
        self.finish = asyncio.Event()
        self.error: Exception | None = None
        self.state = "not begun"
        self._slow = slow

    async def run(self) -> str:
        self.state = "running"
        try:
            await self.finish.wait()
            if self.error is not None:
                raise self.error
            return "result"
        except asyncio.CancelledError:
            self.state = CLEANING
            raise
        finally:
            for _ in range(self._slow):
                await asyncio.sleep(0)
            self.state = "over"


def left_of(work: Work) -> str:
    """What is the matter with work that is not over."""
    if work.state == CLEANING:
        return f"Cancelling only asks; until the work has ended its blocks are taken. {LEFT_BEHIND}"
    return f"Nothing has cancelled it: it holds its blocks, and goes on. {LEFT_BEHIND}"


class Talkative(Wire):
    """A client that says something before it leaves, as often as it is told to."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self._words = words

    async def receive(self) -> dict[str, Any]:
        if self._words:
            self._words -= 1
            await asyncio.sleep(0)
            return {"type": "http.request", "body": b"x", "more_body": True}
        return await super().receive()


def begin(part: ModuleType, wire: Wire, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
    note("until_disconnect(receive, work)")
    return asyncio.ensure_future(part.until_disconnect(wire.receive, work))


@task("8.5")
def test_work_that_ends_is_returned(part: ModuleType) -> None:
    """until_disconnect returns what the work returns, and raises what it raises."""

    async def test(error: Exception | None) -> Any:
        wire, work = Wire(), Work()
        work.error = error
        work.finish.set()
        result = await within(begin(part, wire, work.run()), "until_disconnect, whose work ended")
        expect_equal(
            wire.waiting, 0, "who still waits for a message of the client", why=LEFT_BEHIND
        )
        return result

    expect_equal(run(test(None)), "result", "what until_disconnect returns")
    with expect_raises(EngineDeadError, "until_disconnect whose work raises EngineDeadError"):
        run(test(EngineDeadError("dead")))


@task("8.5")
def test_a_client_that_leaves_is_noticed_while_it_waits(part: ModuleType) -> None:
    """When the client leaves, ClientDisconnect is raised at once, though the work goes on waiting."""

    async def test() -> None:
        wire, work = Wire(), Work()
        waiting = begin(part, wire, work.run())
        await settle()
        wire.hang_up()
        await asyncio.wait({waiting}, timeout=1)
        expect(waiting.done(), "until_disconnect goes on waiting for the work", why=QUEUED)
        with expect_raises(ClientDisconnect, "until_disconnect when the client leaves", why=QUEUED):
            await waiting

    run(test())


@task("8.5")
def test_only_a_disconnect_is_one(part: ModuleType) -> None:
    """Messages of other types may come before: the client has not left."""

    async def test() -> None:
        wire, work = Talkative(3), Work()
        waiting = begin(part, wire, work.run())
        await settle()
        why = 'A message of the type "http.request" is a part of the body, which may come late.'
        expect(not waiting.done(), "it ended at a message that was no disconnect", why=why)
        wire.hang_up()
        with expect_raises(ClientDisconnect, "until_disconnect when the client leaves", why=why):
            await within(waiting, "ClientDisconnect after three other messages and the disconnect")

    run(test())


@task("8.5")
def test_work_has_ended_before_it_returns(part: ModuleType) -> None:
    """Whether the client leaves or the caller is cancelled: the work is cancelled, and has ended."""

    async def test(leaves: bool) -> None:
        wire, work = Wire(), Work(slow=5)
        waiting = begin(part, wire, work.run())
        await settle()
        if leaves:
            wire.hang_up()
        else:
            note("# until_disconnect is cancelled")
            waiting.cancel()
        await asyncio.wait({waiting}, timeout=1)
        how = "the client left" if leaves else "it was cancelled"
        expect(waiting.done(), f"until_disconnect goes on after {how}", why=QUEUED)
        what = f"the work when until_disconnect ended because {how}"
        expect_equal(work.state, "over", what, why=left_of(work))
        expect_equal(
            wire.waiting, 0, "who still waits for a message of the client", why=LEFT_BEHIND
        )
        cancelled = waiting.cancelled()
        expect_equal(cancelled, not leaves, "whether until_disconnect ended as cancelled")

    run(test(leaves=True))
    run(test(leaves=False))


class SlowToHear(Wire):
    """A server whose `receive` needs some turns to end after it was cancelled."""

    async def receive(self) -> dict[str, Any]:
        self.waiting += 1
        try:
            return await super().receive()
        finally:
            for _ in range(5):
                await asyncio.sleep(0)
            self.waiting -= 1


@task("8.5")
def test_the_wait_for_a_message_has_ended_too(part: ModuleType) -> None:
    """When the work is done the wait for the client's message is cancelled, and has ended."""

    async def test() -> None:
        wire, work = SlowToHear(), Work()
        waiting = begin(part, wire, work.run())
        await settle()
        work.finish.set()
        await within(waiting, "until_disconnect, whose work ended")
        why = "Cancelling only asks: wait until both tasks have ended. " + LEFT_BEHIND
        what = "who still waits for a message, where `receive` is slow to end"
        expect_equal(wire.waiting, 0, what, why=why)

    run(test())


@task("8.5")
def test_work_that_is_done_counts(part: ModuleType) -> None:
    """If the work has ended when the client leaves, it is returned, not thrown away."""

    async def at_once() -> str:
        return "result"

    async def test() -> None:
        wire = Wire()
        wire.hang_up()
        why = "Both are over: what was computed is there, and sending it costs nothing."
        waiting = begin(part, wire, at_once())
        await asyncio.wait({waiting}, timeout=1)
        expect(waiting.done() and not waiting.exception(), "the result was thrown away", why=why)
        expect_equal(waiting.result(), "result", "what until_disconnect returns", why=why)

    run(test())


@task("8.5")
@examples(60)
@given(
    words=st.integers(0, 3),
    slow=st.integers(0, 4),
    end=st.sampled_from(["work ends", "work fails", "client leaves", "caller is cancelled"]),
)
def test_any_end_of_a_wait(part: ModuleType, words: int, slow: int, end: str) -> None:
    """Whatever comes first decides; then nothing goes on, however slowly the work cleans up."""

    async def test() -> None:
        wire, work = Talkative(words), Work(slow)
        waiting = begin(part, wire, work.run())
        await settle()
        expect(not waiting.done(), "until_disconnect ended before anything did")
        note(f"# {end}")
        work.error = EngineDeadError("dead") if end == "work fails" else None
        actions: dict[str, Callable[[], Any]] = {
            "client leaves": wire.leave.set,
            "caller is cancelled": waiting.cancel,
        }
        actions.get(end, work.finish.set)()
        await asyncio.wait({waiting}, timeout=1)
        expect(waiting.done(), f"until_disconnect goes on after: {end}", why=QUEUED)
        what = "the work when until_disconnect has ended"
        expect_equal(work.state, "over", what, why=left_of(work))
        expect_equal(wire.waiting, 0, "who still waits for a message", why=LEFT_BEHIND)
        how = "cancelled" if waiting.cancelled() else type(waiting.exception()).__name__
        expected = {
            "work ends": "NoneType",
            "work fails": "EngineDeadError",
            "client leaves": "ClientDisconnect",
            "caller is cancelled": "cancelled",
        }
        expect_equal(how, expected[end], f"what until_disconnect raises after: {end}")

    run(test())
