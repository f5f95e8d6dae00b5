"""`/health` and `/ready`: what a load balancer asks. `/health` also tells whose parts run."""

from typing import Any, Literal

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from yaie import __version__
from yaie.engine.background.engine_life import EngineState
from yaie.server.openapi.completions import Answer
from yaie.server.openapi.document import STATUSES, described
from yaie.server.service import Service


class PartInUse(Answer):
    """Whose package serves a part of the engine, and why."""

    lab: str
    owner: Literal["yours", "reference"]
    module: str
    reason: str


class Health(Answer):
    """The state of the engine. What it runs is told once it is known."""

    status: EngineState
    version: str
    model: str | None = None
    backend: str | None = None
    ranks: int | None = None
    parts: list[PartInUse] | None = None


class Readiness(Answer):
    """Whether a request sent now would be admitted."""

    status: Literal["loading", "ready", "draining", "dead", "full"]


def health_router(service: Service) -> APIRouter:
    """The router with these two. They are given, whichever part answers below `/v1`."""
    router = APIRouter()

    @router.get(
        "/health", **_described("getHealth", "Whether the engine runs, and what it runs", Health)
    )
    async def health() -> Response:
        """Liveness: 200 when ready; 503 while loading or draining, and when dead. Says what runs."""
        state = service.engine.state
        body = _health(service).model_dump(exclude_none=True)
        return JSONResponse(body, 200 if state is EngineState.READY else 503)

    @router.get(
        "/ready",
        **_described("getReadiness", "Whether a request sent now would be admitted", Readiness),
    )
    async def ready() -> Response:
        """Readiness: 200 when a request sent now would be admitted. Unlike `/health`, 503 as well while
        the queue is full: send the next one elsewhere, but do not restart this server."""
        state = service.engine.state
        if state is EngineState.READY and service.engine.is_full:
            return JSONResponse({"status": "full"}, 503, {"Retry-After": "1"})
        return JSONResponse({"status": state.value}, 200 if state is EngineState.READY else 503)

    return router


def _described(name: str, summary: str, answer: type[Answer]) -> dict[str, Any]:
    """A 503 holds the same as an answer."""
    about = described(name, "operation", summary, answer=answer, is_open=True)
    about["responses"][503] = {"model": answer, "description": STATUSES[503]}
    return about


def _health(service: Service) -> Health:
    state = service.engine.state
    health = Health(status=state, version=__version__)
    if state in (EngineState.READY, EngineState.DRAINING):
        info = service.engine.info
        health.model, health.backend = service.model_name, info.backend
        health.ranks = info.config.num_ranks
        health.parts = [PartInUse.model_validate(part, from_attributes=True) for part in info.parts]
    return health
