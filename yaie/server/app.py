"""Puts the HTTP application together. It has no life of its own: `run.py` starts and stops it."""

from typing import TYPE_CHECKING

from fastapi import FastAPI

from yaie import __version__
from yaie.engine.async_engine import AsyncEngine
from yaie.server.health import health_router
from yaie.server.limits import MAX_BODY_BYTES, BodyLimit
from yaie.server.service import Service

if TYPE_CHECKING:
    from yaie.core.contracts import ApiServer


def create_app(
    engine: AsyncEngine,
    api: "ApiServer",
    *,
    served_model_name: str | None = None,
    max_body_bytes: int = MAX_BODY_BYTES,
) -> FastAPI:
    """The application around an engine, which may still be loading.

    api: the part that speaks OpenAI's API, `parts["api_server"]`.
    """
    app = FastAPI(
        title="YAIE",
        version=__version__,
        redirect_slashes=False,
        # These pages would load scripts from elsewhere; /openapi.json has all they say.
        docs_url=None,
        redoc_url=None,
    )
    service = Service(engine, served_model_name)
    api.install_error_handlers(app)
    app.add_middleware(BodyLimit, refuse=api.http_error, max_bytes=max_body_bytes)
    app.include_router(health_router(service))
    app.include_router(api.make_router(service))
    return app
