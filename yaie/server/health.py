"""`/health` and `/ready`: what a load balancer asks, and whoever wants to know whose parts run."""

from typing import Any

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from yaie import __version__
from yaie.engine.async_engine import EngineState
from yaie.server.service import Service


def health_router(service: Service) -> APIRouter:
    """The router with these two. They are ours, whoever wrote the endpoints below `/v1`."""
    router = APIRouter()

    @router.head("/health", include_in_schema=False)
    @router.get("/health")
    async def health() -> Response:
        """Liveness: 200 when ready; 503 while loading or draining, and when dead. Says what runs."""
        state = service.engine.state
        return JSONResponse(_body(service), 200 if state is EngineState.READY else 503)

    @router.head("/ready", include_in_schema=False)
    @router.get("/ready")
    async def ready() -> Response:
        """Readiness: 200 when a request sent now would be admitted. Unlike `/health`, 503 as well while
        the queue is full: send the next one elsewhere, but do not restart this server."""
        state = service.engine.state
        if state is EngineState.READY and service.engine.is_full:
            return JSONResponse({"status": "full"}, 503, {"Retry-After": "1"})
        return JSONResponse({"status": state.value}, 200 if state is EngineState.READY else 503)

    return router


def _body(service: Service) -> dict[str, Any]:
    state = service.engine.state
    body: dict[str, Any] = {"status": state.value, "version": __version__}
    if state in (EngineState.READY, EngineState.DRAINING):
        body["model"] = service.model_name
        body["backend"] = service.engine.engine.backend.name
        body["parts"] = [
            {"lab": part.lab, "owner": part.owner, "module": part.module, "reason": part.reason}
            for part in service.engine.engine.parts
        ]
    return body
