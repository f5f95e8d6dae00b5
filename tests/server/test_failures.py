"""What clients and `/health` see when the engine is not well: loading, failing, draining, dead."""

import json
import threading
from typing import Any

import httpx
import pytest

from tests.server.conftest import LiveServer, serving, within
from tests.server.fake_engine import FakeEngine
from yaie.core.errors import LostPartError
from yaie.server.service import Service

LONG = {"prompt": "x" * 900, "max_tokens": 900}


def events_of(response: httpx.Response) -> list[Any]:
    """The events of a stream; [DONE] must be the last."""
    lines = [line for line in response.text.split("\n\n") if line]
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def test_health_of_a_ready_server_names_model_and_parts(live: LiveServer) -> None:
    response = live.http.get("/health")
    assert response.status_code == 200
    body = response.json()
    assert body["status"] == "ready"
    assert body["model"] == "tiny-llama"
    assert body["backend"] in ("cpu", "torch", "triton")
    sampler = next(part for part in body["parts"] if part["lab"] == "sampler")
    assert (sampler["owner"], sampler["module"]) == ("reference", "solutions.sampler")
    assert sampler["reason"]


def test_loading_server_listens_and_says_so() -> None:
    may_load = threading.Event()

    def load() -> FakeEngine:
        may_load.wait()
        return FakeEngine()

    with serving(load, wait=False) as server:
        health = server.http.get("/health")
        assert (health.status_code, health.json()["status"]) == (503, "loading")
        for path in ("/v1/models", "/v1/models/x"):
            assert server.http.get(path).status_code == 503
        refused = server.http.post("/v1/completions", json=LONG)
        assert refused.status_code == 503
        assert refused.headers["retry-after"]
        may_load.set()


@pytest.mark.parametrize("stream", [False, True])
def test_failing_step_before_the_first_token_is_a_503(
    fake: FakeEngine, fake_live: LiveServer, stream: bool
) -> None:
    fake.fault = RuntimeError("boom at /some/path")
    response = fake_live.http.post("/v1/completions", json={**LONG, "stream": stream})
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "engine_dead"
    assert "boom" not in response.text


def test_a_learners_part_that_ends_the_engine_is_named(
    fake: FakeEngine, fake_live: LiveServer
) -> None:
    fake.fault = LostPartError("rank 1, your part sampler failed: boom (labs/sampler/x.py, line 3)")
    for _ in range(2):  # the request that met it, and one that comes later
        response = fake_live.http.post("/v1/completions", json=LONG)
        assert response.status_code == 503
        error = response.json()["error"]
        assert (error["message"], error["code"]) == (str(fake.fault), "part_error")


def test_failing_step_after_the_first_token_is_an_error_event(
    fake: FakeEngine, fake_live: LiveServer
) -> None:
    answer: list[httpx.Response] = []

    def ask() -> None:
        answer.append(fake_live.http.post("/v1/completions", json={**LONG, "stream": True}))

    fake.pause_after(5)
    asking = threading.Thread(target=ask)
    asking.start()
    assert fake.paused.wait(10)
    fake.fault = RuntimeError("boom")
    fake.gate.set()
    asking.join(10)
    events = events_of(answer[0])
    assert answer[0].status_code == 200
    assert events[0]["choices"][0]["text"]
    assert events[-1]["error"]["code"] == "engine_dead"


def test_failed_request_leaves_the_others_alone(fake: FakeEngine, fake_live: LiveServer) -> None:
    fake.poison = "bad"
    bad = fake_live.http.post("/v1/completions", json={"prompt": "bad"})
    assert bad.status_code == 500
    assert bad.json()["error"]["message"] == "its logits are not finite"
    streamed = fake_live.http.post("/v1/completions", json={"prompt": "bad", "stream": True})
    assert streamed.status_code == 500
    good = fake_live.http.post("/v1/completions", json={"prompt": "good"})
    assert good.json()["choices"][0]["text"] == "doog"


def test_one_failed_choice_ends_its_siblings(fake: FakeEngine, fake_live: LiveServer) -> None:
    fake.poison = "bad"
    body = {"prompt": ["x" * 500, "bad"], "max_tokens": 500}
    assert fake_live.http.post("/v1/completions", json=body).status_code == 500
    assert fake_live.http.post("/v1/completions", json={"prompt": "ok"}).status_code == 200
    assert len(fake.aborted) == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/v1/completions", {"prompt": "x" * 900}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x" * 900}]}),
        ("/v1/responses", {"input": "x" * 900}),
    ],
)
def test_request_whose_reply_cannot_be_made_is_aborted(
    fake: FakeEngine,
    fake_live: LiveServer,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    asked: dict[str, Any],
    stream: bool,
) -> None:
    """It was submitted before: unread, it would run to its end."""

    def broken(*_: Any) -> None:
        raise RuntimeError("boom at /some/path")

    for made_by in ("extend", "read"):
        monkeypatch.setattr(Service, made_by, broken)
    fake.step_seconds = 0.01
    response = fake_live.http.post(path, json={**asked, "stream": stream})
    assert response.status_code == 500
    assert "boom" not in response.text
    within(20, lambda: len(fake.aborted) == 1 and not fake.alive)
    assert fake_live.engine.num_streams == 0


def test_dead_engine_ends_the_server(fake: FakeEngine) -> None:
    def is_up() -> bool:
        try:
            return server.http.get("/health").json()["status"] == "dead"
        except httpx.TransportError:
            return False

    with serving(lambda: fake) as server:
        fake.fault = RuntimeError("boom")
        assert server.http.post("/v1/completions", json=LONG).status_code == 503
        within(20, lambda: not is_up())
        assert server.engine.failure is fake.fault


def test_served_name_replaces_the_models_own(fake: FakeEngine) -> None:
    with serving(lambda: fake, served_model_name="my/model") as server:
        assert server.http.get("/v1/models").json()["data"][0]["id"] == "my/model"
        assert server.http.get("/v1/models/my/model").status_code == 200
        assert server.http.get("/v1/models/fake").status_code == 404
