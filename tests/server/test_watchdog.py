"""A step that does not end: clients are told, `/health` says so, and nobody waits for the thread."""

import threading
from typing import Any

import httpx
import pytest

from tests.server.conftest import serving, within
from tests.server.fake_engine import FakeEngine
from tests.server.test_failures import LONG, events_of
from yaie.core.errors import EngineDeadError
from yaie.engine.background.engine_life import EngineState


def in_background(ask: Any) -> tuple[threading.Thread, list[httpx.Response]]:
    answers: list[httpx.Response] = []
    thread = threading.Thread(target=lambda: answers.append(ask()))
    thread.start()
    return thread, answers


@pytest.mark.parametrize("stream", [False, True])
def test_hung_step_before_the_first_token_is_a_503(fake: FakeEngine, stream: bool) -> None:
    fake.gate.clear()
    with serving(lambda: fake, step_timeout=0.2) as server:
        response = server.http.post("/v1/completions", json={**LONG, "stream": stream})
        assert response.status_code == 503
        assert response.json()["error"]["code"] == "engine_dead"
        assert "0.2" not in response.text  # what exactly happened is for the log
        within(20, lambda: server.engine.state is EngineState.DEAD)
    fake.gate.set()


def test_hung_step_after_the_first_token_is_an_error_event_and_ends_the_server(
    fake: FakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(lambda: fake, step_timeout=0.3) as server:
        fake.pause_after(5)
        asking, answers = in_background(
            lambda: server.http.post("/v1/completions", json={**LONG, "stream": True})
        )
        assert fake.paused.wait(10)
        asking.join(10)
        events = events_of(answers[0])
        assert events[0]["choices"][0]["text"]
        assert events[-1]["error"]["code"] == "engine_dead"
        assert isinstance(server.engine.failure, EngineDeadError)
        assert server.engine.is_stuck
    hang = next(record for record in caplog.records if record.levelname == "CRITICAL")
    assert "self.gate.wait()" in str(hang.stack_info)  # where the thread stands
    fake.gate.set()


def test_health_says_dead_while_clients_are_told(fake: FakeEngine) -> None:
    fake.gate.clear()
    seen: list[tuple[int, str]] = []
    with serving(lambda: fake, step_timeout=0.3) as server:
        asking, _ = in_background(lambda: server.http.post("/v1/completions", json=LONG))

        def died() -> bool:
            health = server.http.get("/health")
            seen.append((health.status_code, health.json()["status"]))
            return health.status_code == 503

        with pytest.MonkeyPatch.context() as patch:
            # The server ends as soon as the engine is dead: hold it for one more look.
            patch.setattr(server.engine._ended, "set", lambda: None)
            within(20, died)
        server.engine._loop.call_soon_threadsafe(server.engine._ended.set)
        asking.join(10)
    assert seen[0] == (200, "ready")
    assert seen[-1] == (503, "dead")
    fake.gate.set()


def test_step_that_ends_late_after_all_changes_nothing(fake: FakeEngine) -> None:
    fake.gate.clear()
    with serving(lambda: fake, step_timeout=0.2) as server:
        assert server.http.post("/v1/completions", json=LONG).status_code == 503
        fake.gate.set()
        within(20, lambda: not server.engine.is_stuck)
        assert fake.steps == 1
        assert server.engine.state is EngineState.DEAD
        assert server.engine.num_streams == 0


def test_steps_that_end_in_time_are_left_alone(fake: FakeEngine) -> None:
    fake.step_seconds = 0.05
    with serving(lambda: fake, step_timeout=1.5) as server:
        body = {"prompt": "x" * 40, "max_tokens": 40}  # longer in all than a step may take
        assert server.http.post("/v1/completions", json=body).status_code == 200
        assert server.engine.state is EngineState.READY


def test_no_limit_means_none(fake: FakeEngine) -> None:
    fake.gate.clear()
    with serving(lambda: fake, step_timeout=0.0) as server:
        asking, answers = in_background(
            lambda: server.http.post("/v1/completions", json={"prompt": "abc"})
        )
        asking.join(0.5)
        assert asking.is_alive()
        fake.gate.set()
        asking.join(10)
        assert answers[0].json()["choices"][0]["text"] == "cba"
