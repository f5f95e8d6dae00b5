"""Lab 8: clients that leave."""

import asyncio
import logging

import pytest
from starlette.requests import ClientDisconnect

from grader.kit.api import Wire, scripted
from grader.kit.waiting import run
from solutions.api_server import (
    Answering,
    EventStream,
    streamed_answer,
    until_disconnect,
    whole_answer,
)
from yaie.core.errors import EngineDeadError


def test_a_client_that_leaves_a_stream_ends_it_quietly() -> None:
    async def test() -> None:
        wire = Wire()
        stream, reply = scripted("a", None)
        response = await streamed_answer(stream, reply)
        assert isinstance(response, EventStream)
        serving = asyncio.create_task(response({}, wire.receive, wire.send))
        while len(wire.messages) < 2 or not wire.waiting:
            await asyncio.sleep(0)
        assert not stream.closed
        wire.leave.set()
        await serving
        assert stream.closed

    run(test())


def test_leaving_while_the_first_output_is_awaited_closes_the_stream() -> None:
    async def test() -> None:
        wire = Wire()
        stream, reply = scripted(None)
        wire.leave.set()
        with pytest.raises(ClientDisconnect):
            await until_disconnect(wire.receive, streamed_answer(stream, reply))
        assert stream.closed

    run(test())


def test_leaving_while_a_whole_answer_is_made_closes_the_stream() -> None:
    async def test() -> None:
        wire = Wire()
        stream, reply = scripted("a", None)
        asyncio.get_running_loop().call_later(0.01, wire.leave.set)
        with pytest.raises(ClientDisconnect):
            await until_disconnect(wire.receive, whole_answer(stream, reply))
        assert stream.closed

    run(test())


async def _result() -> str:
    await asyncio.sleep(0)
    return "result"


async def _failure() -> str:
    await asyncio.sleep(0)
    raise EngineDeadError("dead")


def test_work_that_ends_first_is_returned_and_nobody_listens_any_more() -> None:
    async def test() -> None:
        wire = Wire()
        before = asyncio.all_tasks()
        assert await until_disconnect(wire.receive, _result()) == "result"
        assert wire.waiting == 0
        assert asyncio.all_tasks() == before

    run(test())


def test_work_that_ends_as_the_client_leaves_counts() -> None:
    async def at_once() -> str:
        return "result"

    async def test() -> None:
        wire = Wire()
        wire.leave.set()
        assert await until_disconnect(wire.receive, at_once()) == "result"

    run(test())


def test_what_work_raises_is_raised_and_nobody_listens_any_more() -> None:
    async def test() -> None:
        wire = Wire()
        with pytest.raises(EngineDeadError):
            await until_disconnect(wire.receive, _failure())
        assert wire.waiting == 0

    run(test())


@pytest.mark.parametrize("how", ["leaves", "is cancelled"])
def test_work_has_ended_when_its_caller_leaves_or_is_cancelled(how: str) -> None:
    async def test() -> None:
        wire = Wire()
        ended: list[str] = []

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0.01)  # giving things back takes a moment
                ended.append("work")

        waiting = asyncio.create_task(until_disconnect(wire.receive, work()))
        while not wire.waiting:
            await asyncio.sleep(0)
        if how == "leaves":
            wire.leave.set()
        else:
            waiting.cancel()
        with pytest.raises(ClientDisconnect if how == "leaves" else asyncio.CancelledError):
            await waiting
        assert ended == ["work"]
        assert wire.waiting == 0

    run(test())


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (None, "ok"),
        (asyncio.CancelledError(), "client left"),
        (ClientDisconnect(), "client left"),
        (EngineDeadError("dead"), "failed, engine_dead"),
        (KeyError("secret"), "failed, KeyError"),
    ],
)
def test_however_an_answer_ends_its_stream_is_closed_and_a_line_says_how(
    error: BaseException | None, outcome: str, caplog: pytest.LogCaptureFixture
) -> None:
    stream, reply = scripted("a.")

    async def test() -> None:
        async with Answering(stream, reply):
            if error is not None:
                raise error

    caplog.set_level(logging.INFO)
    if error is None:
        run(test())
    else:
        with pytest.raises(type(error)):
            asyncio.run(test())
    assert stream.closed
    assert f"{reply.id} {outcome}: prompt 4 (0 cached)" in caplog.text
    assert "secret" not in caplog.text
