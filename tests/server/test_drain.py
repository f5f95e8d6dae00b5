"""The end of a server that is told to leave; what a signal does is `shutdown`. See also tests/cli."""

import asyncio
import threading
from concurrent.futures import Future
from typing import Any

import httpx
import pytest

from tests.server.conftest import LiveServer, patiently, serving, within
from tests.server.fake_engine import FakeEngine
from tests.server.test_failures import LONG, events_of
from yaie.engine.background.async_engine import AsyncEngine
from yaie.engine.background.engine_life import EngineState
from yaie.server import run
from yaie.server.listen import listen
from yaie.server.settings import ServerSettings


def leave(server: LiveServer, seconds: float) -> "Future[None]":
    """Begin to drain."""
    future = asyncio.run_coroutine_threadsafe(server.engine.shutdown(seconds), server.engine._loop)
    within(20, lambda: server.engine.state is EngineState.DRAINING)
    return future


def ask(server: LiveServer, answers: list[httpx.Response], **body: object) -> threading.Thread:
    def post() -> None:
        answers.append(
            httpx.post(f"{server.url}/v1/completions", json={**LONG, **body}, timeout=30)
        )

    thread = threading.Thread(target=post)
    thread.start()
    return thread


@pytest.mark.parametrize("stream", [False, True])
def test_what_runs_is_finished_and_what_comes_is_refused(fake: FakeEngine, stream: bool) -> None:
    answers: list[httpx.Response] = []
    with serving(lambda: fake, drain_seconds=30.0) as server:
        fake.pause_after(3)
        asking = ask(server, answers, stream=stream)
        assert fake.paused.wait(10)
        leave(server, 30.0)
        refused = server.http.post("/v1/completions", json=LONG)
        assert refused.status_code == 503
        assert refused.headers["retry-after"]
        assert refused.json()["error"]["code"] == "engine_unavailable"
        assert server.http.get("/health").status_code == 503
        assert server.http.get("/metrics").status_code == 200
        fake.gate.set()
        asking.join(20)
    text = answers[0].text
    assert answers[0].status_code == 200
    assert '"finish_reason":"stop"' in text.replace(": ", ":")


def test_an_answer_that_does_not_end_keeps_no_server(
    fake: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "FLUSH_SECONDS", 0.2)

    async def serve() -> None:
        engine, listener = AsyncEngine(lambda: fake), listen("127.0.0.1", 0)
        is_ready, is_asked = asyncio.Event(), asyncio.Event()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            is_asked.set()
            await asyncio.Event().wait()

        settings = ServerSettings(drain_seconds=0.0)
        serving = asyncio.create_task(
            run.run_server(engine, app, listener, settings, on_ready=is_ready.set)
        )
        await is_ready.wait()
        _, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await is_asked.wait()
        await engine.shutdown()
        await serving
        writer.close()

    asyncio.run(asyncio.wait_for(serve(), 20))


def test_what_the_limit_leaves_over_ends_with_an_error(fake: FakeEngine) -> None:
    fake.step_seconds = 0.01
    answers: list[httpx.Response] = []
    with serving(lambda: fake) as server:
        fake.step = patiently(server, fake.step)  # type: ignore[method-assign]
        asking = [ask(server, answers, stream=True), ask(server, answers, stream=False)]
        within(20, lambda: len(fake.alive) == 2)
        begun = fake.steps + 3  # by then the stream's first piece has been sent
        within(20, lambda: fake.steps > begun)
        leave(server, 0.2).result(10)
        for thread in asking:
            thread.join(20)
        assert not server.engine.is_stuck
    by_status = {answer.status_code: answer for answer in answers}
    assert by_status.keys() == {200, 503}
    assert events_of(by_status[200])[-1]["error"]["code"] == "engine_unavailable"
    assert by_status[503].json()["error"]["code"] == "engine_unavailable"
    assert not fake.alive


def test_queue_and_inbox_are_told_too(fake: FakeEngine) -> None:
    """A step in progress holds the engine: nothing behind it is even admitted."""
    answers: list[httpx.Response] = []
    with serving(lambda: fake) as server:
        fake.pause_after(0)
        asking = [ask(server, answers) for _ in range(10)]
        within(20, lambda: server.engine.num_streams == 10)
        leaving = leave(server, 0.1)
        for thread in asking:
            thread.join(10)
        fake.gate.set()
        leaving.result(10)
    assert [answer.status_code for answer in answers] == [503] * 10


def test_idle_server_leaves_at_once(fake: FakeEngine) -> None:
    with serving(lambda: fake) as server:
        leave(server, 60.0).result(5)
        assert not server.engine.is_stuck


def test_step_that_hangs_while_draining_does_not_hold_the_end_up(fake: FakeEngine) -> None:
    answers: list[httpx.Response] = []
    with serving(lambda: fake, step_timeout=0.5) as server:
        fake.pause_after(3)
        asking = ask(server, answers)
        assert fake.paused.wait(10)
        leave(server, 60.0).result(10)
        asking.join(10)
        assert server.engine.failure is not None
        assert server.engine.is_stuck
    assert answers[0].status_code == 503
    fake.gate.set()
