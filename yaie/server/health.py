"""`/health`: what a load balancer asks, and whoever wants to know whose parts run."""

from typing import Any

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from yaie import __version__
from yaie.engine.async_engine import EngineState
from yaie.server.service import Service


def health_router(service: Service) -> APIRouter:
    """The router with this one endpoint. It is ours, whoever wrote the endpoints below `/v1`."""
    router = APIRouter()

    @router.get("/health")
    async def health() -> Response:
        """200 when ready; 503 while loading or draining, and when dead. Says what runs, and whose."""
        state = service.engine.state
        body: dict[str, Any] = {"status": state.value, "version": __version__}
        if state in (EngineState.READY, EngineState.DRAINING):
            body["model"] = service.model_name
            body["backend"] = service.engine.engine.backend.name
            body["parts"] = [
                {
                    "lab": part.lab,
                    "owner": part.owner,
                    "module": part.module,
                    "reason": part.reason,
                }
                for part in service.engine.engine.parts
            ]
        return JSONResponse(body, 200 if state is EngineState.READY else 503)

    return router
