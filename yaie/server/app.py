"""Puts the HTTP application together. It has no life of its own: `run.py` starts and stops it."""

from fastapi import FastAPI

from yaie import __version__
from yaie.engine.async_engine import AsyncEngine
from yaie.server.errors import install_error_handlers
from yaie.server.limits import MAX_BODY_BYTES, BodyLimit
from yaie.server.routes import router
from yaie.server.service import Service


def create_app(
    engine: AsyncEngine,
    *,
    served_model_name: str | None = None,
    max_body_bytes: int = MAX_BODY_BYTES,
) -> FastAPI:
    """The application around an engine, which may still be loading."""
    app = FastAPI(
        title="YAIE",
        version=__version__,
        redirect_slashes=False,
        # These pages would load scripts from elsewhere; /openapi.json has all they say.
        docs_url=None,
        redoc_url=None,
    )
    app.state.service = Service(engine, served_model_name)
    install_error_handlers(app)
    app.add_middleware(BodyLimit, max_bytes=max_body_bytes)
    app.include_router(router)
    return app
