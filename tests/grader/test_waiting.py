"""Graders of asynchronous parts give up soon, and say what they awaited."""

import asyncio
import contextlib
import time
from types import ModuleType

import pytest

from grader.kit.api import Wire, borrowed, scripted
from grader.kit.expect import Mismatch
from grader.kit.waiting import run, settle, until, within
from solutions import api_server


async def stubborn() -> None:
    """Swallows its cancellation, as a careless part may."""
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


def test_what_never_comes_is_named() -> None:
    with pytest.raises(Mismatch, match=r"the answer: still awaited after 0\.05 seconds"):
        run(within(asyncio.Event().wait(), "the answer", 0.05))


def test_a_condition_that_never_holds_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grader.kit.waiting.PATIENCE_SECONDS", 0.05)
    with pytest.raises(Mismatch, match="the first chunk: still awaited"):
        run(until(lambda: False, "the first chunk"))


def test_a_task_that_resists_its_cancellation_holds_nobody_up() -> None:
    began = time.monotonic()
    with pytest.raises(Mismatch):
        run(stubborn(), 0.05)
    assert time.monotonic() - began < 20


def test_results_and_errors_come_through() -> None:
    async def fail() -> None:
        raise KeyError("x")

    assert run(within(asyncio.sleep(0, "result"), "it")) == "result"
    with pytest.raises(KeyError):
        run(within(fail(), "it"))


def test_what_is_borrowed_is_given_back() -> None:
    module = ModuleType("mine")
    module.check_model = mine = object()  # type: ignore[attr-defined]
    with borrowed(module, "check_model", "event"):
        assert module.check_model is api_server.check_model
        assert not hasattr(module, "event")  # what a module does not name it does not get
    assert module.check_model is mine


def test_a_client_on_the_wire_leaves_when_it_is_told_to() -> None:
    async def test() -> None:
        wire = Wire(b"x")
        assert (await wire.receive())["body"] == b"x"
        waiting = asyncio.ensure_future(wire.receive())
        await settle()
        assert wire.waiting == 1
        wire.hang_up()
        assert (await waiting)["type"] == "http.disconnect"
        assert wire.waiting == 0

    run(test())


def test_a_closed_stream_yields_nothing_more() -> None:
    async def test() -> list[str]:
        stream, _ = scripted("a", "b.")
        first = await anext(stream)
        await stream.aclose()
        return [first.text] + [output.text async for output in stream]

    assert run(test()) == ["a"]
