"""`/metrics` on what waits and why, and on what found no room."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.models.tiny import tiny_model
from tests.server.conftest import LiveServer, posted, serving, within
from tests.server.fake_engine import FakeEngine
from tests.server.paused import paused_before
from tests.server.test_limits import connect, head, raw
from tests.server.test_metrics import fresh, samples, value
from yaie.engine.background.rejections import Rejection

__all__ = ["fresh"]


def test_gauges_show_what_runs_and_what_waits_and_return_to_zero(fresh: LiveServer) -> None:
    with paused_before(4, fresh, prompt=[[3] * 30, [4] * 30]):
        assert value(fresh, "num_requests_running") == 2
        assert value(fresh, "num_requests_waiting") == 0
        used = fresh.llm.stats()["used_blocks"]
        assert value(fresh, "kv_cache_usage_perc") == used / 24
        assert used >= 16
    within(20, lambda: value(fresh, "num_requests_running") == 0)
    assert value(fresh, "kv_cache_usage_perc") == 0
    [info] = [s for s in samples(fresh) if s.name == "vllm:cache_config_info"]
    assert (info.value, info.labels["block_size"], info.labels["num_gpu_blocks"]) == (1, "4", "24")


def waiting(server: LiveServer) -> dict[str, float]:
    """By reason; checks that they add up."""
    scraped = samples(server)
    by_reason = {
        sample.labels["reason"]: sample.value
        for sample in scraped
        if sample.name == "vllm:num_requests_waiting_by_reason"
    }
    [total] = [s.value for s in scraped if s.name == "vllm:num_requests_waiting"]
    assert total == sum(by_reason.values())
    return by_reason


def test_requests_without_a_slot_wait_for_capacity(tmp_path: Path) -> None:
    from yaie.engine.llm_engine import LLMEngine

    folder = str(tiny_model("llama", tmp_path / "tiny-llama"))
    with serving(
        lambda: LLMEngine(model=folder, num_blocks=64, max_num_seqs=1, threads=1)
    ) as server:
        with paused_before(3, server, prompt=[[token] * 9 for token in (3, 4, 5)]):
            assert waiting(server) == {"capacity": 2, "deferred": 0}
            assert value(server, "num_requests_running") == 1
        within(20, lambda: waiting(server) == {"capacity": 0, "deferred": 0})


@pytest.mark.parametrize("leaves", [False, True])
def test_requests_whose_grammar_is_compiled_are_deferred(
    fake: FakeEngine, fake_live: LiveServer, leaves: bool
) -> None:
    compiled = threading.Event()
    fake.check_params = lambda params: compiled.wait(60)  # type: ignore[assignment,method-assign]
    body = {
        "messages": [{"role": "user", "content": "hi"}],
        "n": 3,
        "response_format": {"type": "json_object"},
    }

    asking = posted(fake_live, "/v1/chat/completions", body)
    within(20, lambda: waiting(fake_live) == {"capacity": 0, "deferred": 3})
    if leaves:
        asking.close()
    else:
        compiled.set()
    within(20, lambda: waiting(fake_live) == {"capacity": 0, "deferred": 0})
    compiled.set()
    asking.close()


# --- rejections ---


def rejections(server: LiveServer) -> dict[str, float]:
    """Those that are not 0, by reason."""
    return {
        sample.labels["reason"]: sample.value
        for sample in samples(server)
        if sample.name == "vllm:admission_rejections_total" and sample.value
    }


def test_every_reason_is_there_from_the_start(fake_live: LiveServer) -> None:
    for reason in Rejection:
        assert value(fake_live, "admission_rejections_total", reason=reason.value) == 0


def test_request_that_finds_the_queue_full_is_counted_once_whatever_its_n(
    fresh: LiveServer,
) -> None:
    body = {"prompt": [5] * 6, "n": 100}
    fresh.llm.config = replace(fresh.llm.config, max_waiting=50)
    assert fresh.http.post("/v1/completions", json=body).status_code == 503
    assert rejections(fresh) == {"max_waiting": 1}
    assert value(fresh, "request_success_total", finished_reason="abort") == 0


def test_burst_that_is_refused_before_admission_is_counted_too(fake: FakeEngine) -> None:
    fake.config = replace(fake.config, max_waiting=2)
    with serving(lambda: fake) as server:
        fake.gate.clear()
        asking = [
            threading.Thread(
                target=server.http.post,
                args=("/v1/completions",),
                kwargs={"json": {"prompt": "ab"}},
            )
            for _ in range(5)
        ]
        asking[0].start()
        assert fake.held.wait(10)  # within a step: nothing is admitted now
        for thread in asking[1:]:
            thread.start()
        within(20, lambda: rejections(server) == {"max_waiting": 2})
        fake.gate.set()
        for thread in asking:
            thread.join(10)


def test_request_that_waits_too_long_is_counted(fake: FakeEngine) -> None:
    fake.gate.clear()
    with serving(lambda: fake, queue_timeout=0.2) as server:
        assert server.http.post("/v1/completions", json={"prompt": "abc"}).status_code == 503
        assert rejections(server) == {"queue_timeout": 1}
        fake.gate.set()


def test_requests_beyond_those_in_progress_are_counted(fake: FakeEngine) -> None:
    fake.gate.clear()
    with serving(lambda: fake, max_concurrent_requests=1) as server:
        asking = threading.Thread(
            target=server.http.post, args=("/v1/completions",), kwargs={"json": {"prompt": "abc"}}
        )
        asking.start()
        within(20, lambda: server.engine.num_streams == 1)
        for _ in range(2):
            assert server.http.get("/v1/models").status_code == 503
        assert rejections(server) == {"max_concurrent_requests": 2}
        fake.gate.set()
        asking.join(10)


def test_bodies_beyond_what_may_be_held_are_counted(fake: FakeEngine) -> None:
    size = 20_000  # smaller bodies are never refused
    with serving(lambda: fake, max_body_bytes=size) as server:
        held = [connect(server) for _ in range(8)]
        for connection in held:
            connection.sendall(head(size) + b"x" * (size - 1))
        tries = []

        def refused() -> bool:  # as soon as the server has read the others
            tries.append(raw(server, head(size) + b"{}" + b" " * (size - 2)))
            return tries[-1].startswith(b"HTTP/1.1 503")

        within(20, refused)
        assert rejections(server) == {"max_body_bytes": 1}
        for connection in held:
            connection.close()


def test_connections_beyond_the_limit_are_counted(fake: FakeEngine) -> None:
    with serving(lambda: fake, max_connections=5) as server:
        open_ones = [connect(server) for _ in range(5)]
        assert raw(server).startswith(b"HTTP/1.1 503")
        for connection in open_ones:
            connection.close()
        within(20, lambda: server.http.get("/health").status_code == 200)
        assert rejections(server)["max_connections"] >= 1


def test_bad_requests_are_no_rejections(fake_live: LiveServer) -> None:
    for body in ({}, {"prompt": "x" * 5000}, {"prompt": "abc", "n": 0}):
        assert fake_live.http.post("/v1/completions", json=body).status_code == 400
    assert rejections(fake_live) == {}
