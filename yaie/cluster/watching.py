"""What is asked of the cluster as a whole: health, metrics, and emptying all caches.

Each asks every replica and makes one answer of theirs.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

from fastapi import APIRouter
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from yaie.cluster.exchange import Asked, http_scope
from yaie.cluster.forward import Replicas
from yaie.server.metrics import expose

SECONDS = 10.0
"""That replicas may take to answer. One that is in a long step does so late."""
NONE_READY = {"status": "loading"}

Figures = Callable[[], Awaitable[list[tuple[str, list[Metric]]]]]
"""Each replica's number and metrics."""


def watching_router(replicas: Replicas, figures: Figures) -> APIRouter:
    """The router with these. All other paths are a single replica's to answer."""
    router = APIRouter()

    async def everywhere(method: str, path: str) -> list[tuple[int, Any]]:
        asked = Asked(http_scope(method, path))
        try:
            answers = await asyncio.wait_for(replicas.everywhere(asked), SECONDS)
        except asyncio.TimeoutError:
            return []
        return [(status, json.loads(body)) for status, body in answers]

    async def best(path: str) -> Response:
        """The answer of one that is well, if there is one."""
        answers = sorted(await everywhere("GET", path), key=lambda answer: answer[0])
        status, body = answers[0] if answers else (503, NONE_READY)
        ready = sum(one == 200 for one, _ in answers)
        return JSONResponse({**body, "replicas": {"ready": ready, "running": len(answers)}}, status)

    @router.get("/health")
    async def health() -> Response:
        """200 if a replica is ready. It says what that one runs, and how many there are."""
        return await best("/health")

    @router.get("/ready")
    async def ready() -> Response:
        """200 if a replica would admit a request that comes now."""
        return await best("/ready")

    async def reset() -> Response:
        """Empty the prefix cache of every replica."""
        answers = await everywhere("POST", "/reset_prefix_cache")
        failed = [(status, body) for status, body in answers if status != 200]
        status, body = failed[0] if failed else (200, {})
        freed = sum(body.get("freed_blocks", 0) for _, body in answers)
        return JSONResponse(body if failed else {"freed_blocks": freed}, status)

    for path in ("/reset_prefix_cache", "/flush_cache"):
        router.add_api_route(path, reset, methods=["POST"])

    @router.get("/metrics")
    async def metrics(request: Request) -> Response:
        """Every replica's metrics; the label `engine` is the replica's number."""
        registry = CollectorRegistry()
        registry.register(Merged(await figures()))
        text, content_type = expose(registry, request.headers.get("accept", ""))
        return Response(text, headers={"Content-Type": content_type})

    return router


class Merged(Collector):
    """The metrics of several processes as one set, with a label for each sample's process."""

    def __init__(self, figures: Iterable[tuple[str, list[Metric]]]) -> None:
        self._figures = list(figures)

    def collect(self) -> Iterator[Metric]:
        """Each metric once, with the samples of all."""
        merged: dict[str, Metric] = {}
        for number, metrics in self._figures:
            for metric in metrics:
                whole = merged.setdefault(
                    metric.name, Metric(metric.name, metric.documentation, metric.type, metric.unit)
                )
                whole.samples += [
                    sample._replace(labels={**sample.labels, "engine": number})
                    for sample in metric.samples
                ]
        yield from merged.values()
