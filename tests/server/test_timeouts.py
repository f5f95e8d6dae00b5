"""Requests that wait or run for too long, and queues that are full: each gets its own clear answer."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.models.tiny import tiny_model
from tests.server.conftest import LiveServer, serving, within
from tests.server.fake_engine import FakeEngine
from tests.server.test_failures import LONG, events_of

SHORT = {"prompt": "abc"}


@pytest.mark.parametrize("stream", [False, True])
def test_request_without_a_turn_in_time_is_told_to_come_back(
    fake: FakeEngine, stream: bool
) -> None:
    fake.gate.clear()  # a step in progress that does not end: the answer comes all the same
    with serving(lambda: fake, queue_timeout=0.2) as server:
        response = server.http.post("/v1/completions", json={**LONG, "stream": stream})
        assert response.status_code == 503
        assert response.headers["retry-after"]
        error = response.json()["error"]
        assert (error["type"], error["code"]) == ("overloaded_error", "queue_timeout")
        assert server.engine.num_streams == 0
        fake.gate.set()
        within(20, lambda: not fake.alive)  # it is not computed for nobody


def test_request_not_even_admitted_in_time_is_told_too_and_never_queued(fake: FakeEngine) -> None:
    with serving(lambda: fake, queue_timeout=0.3) as server:
        fake.pause_after(2)
        first = threading.Thread(
            target=server.http.post, args=("/v1/completions",), kwargs={"json": LONG}
        )
        first.start()
        assert fake.paused.wait(10)  # nothing is admitted now
        late = server.http.post("/v1/completions", json=SHORT)
        assert late.json()["error"]["code"] == "queue_timeout"
        before = len(fake.priorities)
        fake.gate.set()
        first.join(10)
        assert len(fake.priorities) == before


def test_request_that_had_its_turn_may_take_longer_than_the_queue_timeout(
    fake: FakeEngine,
) -> None:
    fake.step_seconds = 0.05
    with serving(lambda: fake, queue_timeout=1) as server:
        body = {"prompt": "x" * 40, "max_tokens": 40}
        assert server.http.post("/v1/completions", json=body).status_code == 200


def test_prefill_that_spans_steps_counts_as_a_turn(tmp_path: Path) -> None:
    """It yields nothing for long, yet it does not wait."""
    from yaie.engine.llm_engine import LLMEngine

    folder = str(tiny_model("llama", tmp_path / "tiny-llama"))
    with serving(
        lambda: LLMEngine(model=folder, num_blocks=256, threads=1, token_budget=16),
        queue_timeout=1,
    ) as server:
        slow_down(server, 0.05)
        body = {"prompt": [5] * 640, "max_tokens": 1}  # 40 steps: twice as long as it may wait
        assert server.http.post("/v1/completions", json=body).status_code == 200


def slow_down(server: LiveServer, seconds: float) -> None:
    step: Callable[[], object] = server.llm.step

    def slow_step() -> object:
        threading.Event().wait(seconds)
        return step()

    server.llm.step = slow_step


@pytest.mark.parametrize("stream", [False, True])
def test_request_that_runs_too_long_is_a_504_before_the_first_token(
    fake: FakeEngine, stream: bool
) -> None:
    fake.gate.clear()
    with serving(lambda: fake, request_timeout=0.2) as server:
        response = server.http.post("/v1/completions", json={**LONG, "stream": stream})
        assert response.status_code == 504
        assert response.json()["error"]["code"] == "request_timeout"
        fake.gate.set()
        within(20, lambda: not fake.alive)


def test_request_that_runs_too_long_ends_with_an_event_after_the_first_token(
    fake: FakeEngine,
) -> None:
    fake.step_seconds = 0.01
    with serving(lambda: fake, request_timeout=0.3) as server:
        response = server.http.post("/v1/completions", json={**LONG, "stream": True})
        events = events_of(response)
        assert response.status_code == 200
        assert events[0]["choices"][0]["text"]
        assert events[-1]["error"]["code"] == "request_timeout"
        within(20, lambda: not fake.alive)
        assert server.http.post("/v1/completions", json=SHORT).status_code == 200


def test_each_request_has_its_own_time(fake: FakeEngine) -> None:
    """Those that came and ended before do not shift the limit of those that follow."""
    with serving(lambda: fake, request_timeout=0.4) as server:
        for _ in range(3):
            assert server.http.post("/v1/completions", json=SHORT).status_code == 200
        fake.gate.clear()
        waiting = threading.Event()
        threading.Timer(0.25, waiting.set).start()
        answers: list[httpx.Response] = []
        for _ in range(2):
            asking = threading.Thread(
                target=lambda: answers.append(server.http.post("/v1/completions", json=SHORT))
            )
            asking.start()
            waiting.wait(1)
        asking.join(10)
        within(20, lambda: len(answers) == 2)
        assert [answer.status_code for answer in answers] == [504, 504]
        fake.gate.set()


@pytest.fixture
def crowded(tmp_path: Path) -> Iterator[LiveServer]:
    """One request runs, four may wait."""
    from yaie.engine.llm_engine import LLMEngine

    folder = str(tiny_model("llama", tmp_path / "tiny-llama"))
    with serving(
        lambda: LLMEngine(model=folder, num_blocks=256, threads=1, max_num_seqs=1, max_waiting=4)
    ) as server:
        slow_down(server, 0.01)
        yield server


@pytest.mark.parametrize(
    "body", [{"n": 5}, {"prompt": ["a", "b", "c", "d", "e", "f"]}, {"n": 3, "prompt": ["a", "b"]}]
)
def test_call_that_does_not_fit_the_queue_is_refused_whole(
    crowded: LiveServer, body: dict[str, object]
) -> None:
    response = crowded.http.post("/v1/completions", json={"prompt": "x", "max_tokens": 5, **body})
    assert response.status_code == 503
    assert response.headers["retry-after"]
    assert response.json()["error"]["code"] == "overloaded"
    within(20, lambda: not crowded.llm.has_work)
    crowded.llm.check()


def test_crowd_is_served_or_refused_and_the_queue_stays_bounded(crowded: LiveServer) -> None:
    statuses: list[int] = []
    longest = 0

    def ask() -> None:
        body = {"prompt": "hello", "max_tokens": 4, "ignore_eos": True}
        statuses.append(
            httpx.post(f"{crowded.url}/v1/completions", json=body, timeout=60).status_code
        )

    crowd = [threading.Thread(target=ask) for _ in range(40)]
    for thread in crowd:
        thread.start()
    while any(thread.is_alive() for thread in crowd):
        longest = max(longest, int(crowded.llm.stats()["num_waiting"]))
        threading.Event().wait(0.005)
    assert set(statuses) == {200, 503}
    assert statuses.count(200) >= 5
    assert longest <= 4
    within(20, lambda: not crowded.llm.has_work)
    crowded.llm.check()
