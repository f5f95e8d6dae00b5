"""What the cluster says of itself: of its replicas' answers it makes one."""

import asyncio
import json
from typing import Any

import httpx
from fastapi import FastAPI
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families

from yaie.cluster.exchange import Asked
from yaie.cluster.watching import watching_router


class Answering:
    """Replicas that give these answers to anything. asked: the paths."""

    def __init__(self, *answers: tuple[int, dict[str, Any]]) -> None:
        self.answers = [(status, json.dumps(body).encode()) for status, body in answers]
        self.asked: list[str] = []

    async def everywhere(self, asked: Asked) -> list[tuple[int, bytes]]:
        self.asked.append("{method} {path}".format(**asked.scope))
        return self.answers


def ask(replicas: Any, path: str, method: str = "GET", figures: Any = ()) -> httpx.Response:
    async def told() -> Any:
        return list(figures)

    app = FastAPI()
    app.include_router(watching_router(replicas, told))

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://cluster") as client:
            return await client.request(method, path)

    return asyncio.run(send())


READY, LOADING = {"status": "ready", "model": "m"}, {"status": "loading"}


def test_one_replica_that_is_well_is_enough() -> None:
    response = ask(Answering((503, LOADING), (200, READY)), "/health")
    assert response.status_code == 200
    assert response.json() == {**READY, "replicas": {"ready": 1, "running": 2}}


def test_without_a_replica_that_is_well_it_is_503() -> None:
    assert ask(Answering((503, LOADING)), "/ready").status_code == 503
    none = ask(Answering(), "/health")
    assert (none.status_code, none.json()["replicas"]) == (503, {"ready": 0, "running": 0})


def test_all_caches_are_emptied_and_a_failure_is_told() -> None:
    replicas = Answering((200, {"freed_blocks": 3}), (200, {"freed_blocks": 4}))
    assert ask(replicas, "/flush_cache", "POST").json() == {"freed_blocks": 7}
    assert replicas.asked == ["POST /reset_prefix_cache"]
    failed = ask(
        Answering((200, {"freed_blocks": 3}), (503, {"error": {}})), "/flush_cache", "POST"
    )
    assert (failed.status_code, failed.json()) == (503, {"error": {}})


def test_metrics_are_told_once_with_the_samples_of_all() -> None:
    def of(number: float) -> list[Any]:
        counter = CounterMetricFamily("vllm:prompt_tokens", "Tokens.", labels=["engine"])
        counter.add_metric(["0"], number)
        return [counter, GaugeMetricFamily("process_open_fds", "Files.", value=number)]

    text = ask(Answering(), "/metrics", figures=[("0", of(5)), ("1", of(7))]).text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert text.count("# TYPE vllm:prompt_tokens_total counter") == 1
    for name in ("vllm:prompt_tokens", "process_open_fds"):
        samples = {sample.labels["engine"]: sample.value for sample in families[name].samples}
        assert samples == {"0": 5, "1": 7}
