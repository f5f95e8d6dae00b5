"""`/health` and `/ready` in every state of the engine."""

import threading
from typing import Any

import pytest

from tests.server.conftest import LiveServer, serving, within
from tests.server.fake_engine import FakeEngine
from yaie.engine.background.engine_life import EngineState

LONG = {"prompt": "x" * 900, "max_tokens": 900}
PATHS = ("/health", "/ready")


def look(server: LiveServer, path: str) -> tuple[int, str]:
    response = server.http.get(path)
    head = server.http.head(path)
    assert (head.status_code, head.content) == (response.status_code, b"")
    return response.status_code, response.json()["status"]


def what_runs(server: LiveServer) -> dict[str, Any]:
    """What `/health` says besides the state."""
    body: dict[str, Any] = server.http.get("/health").json()
    del body["status"]
    return body


@pytest.mark.parametrize("path", PATHS)
def test_ready_engine(fake_live: LiveServer, path: str) -> None:
    assert look(fake_live, path) == (200, "ready")


@pytest.mark.parametrize("path", PATHS)
def test_loading_engine(fake: FakeEngine, path: str) -> None:
    may_load = threading.Event()
    with serving(lambda: may_load.wait() and fake, wait=False) as server:
        assert look(server, path) == (503, "loading")
        assert what_runs(server).keys() == {"version"}  # the rest is not known yet
        may_load.set()
        within(10, lambda: server.engine.state is EngineState.READY)
        assert look(server, path) == (200, "ready")


@pytest.mark.parametrize("path", PATHS)
def test_draining_engine(fake: FakeEngine, path: str) -> None:
    with serving(lambda: fake, drain_seconds=20.0) as server:
        ready = what_runs(server)
        assert ready["model"] == "fake"
        assert ready.keys() >= {"version", "backend", "parts"}
        fake.pause_after(3)
        asking = threading.Thread(
            target=server.http.post, args=("/v1/completions",), kwargs={"json": LONG}
        )
        asking.start()
        assert fake.paused.wait(10)
        leave(server)
        within(20, lambda: server.engine.state is EngineState.DRAINING)
        assert look(server, path) == (503, "draining")
        assert what_runs(server) == ready
        refused = server.http.post("/v1/completions", json=LONG)
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "engine_unavailable"
        fake.gate.set()
        asking.join(20)


def leave(server: LiveServer) -> None:
    """What a signal does."""
    import asyncio

    loop = server.engine._loop
    asyncio.run_coroutine_threadsafe(server.engine.shutdown(20.0), loop)


def test_full_queue_is_healthy_but_not_ready(fake: FakeEngine) -> None:
    fake.num_waiting = fake.config.max_waiting
    with serving(lambda: fake) as server:
        assert look(server, "/health") == (200, "ready")
        assert look(server, "/ready") == (503, "full")
        assert server.http.get("/ready").headers["retry-after"]
        fake.num_waiting -= 1
        server.http.post("/v1/completions", json={"prompt": "abc"})
        assert look(server, "/ready") == (200, "ready")


def test_other_methods_are_refused_in_our_shape(fake_live: LiveServer) -> None:
    for path in (*PATHS, "/metrics"):
        response = fake_live.http.post(path)
        assert response.status_code == 405
        assert response.json()["error"]["message"]
