"""Puts the HTTP application together. It has no life of its own: `run.py` starts and stops it.

The endpoints of chats and completions are not here: `api.make_router` is in `routes.py` of lab 8, which
`yaie.parts` takes from `solutions/api_server` or from `labs/api_server`.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, FastAPI
from starlette.middleware.cors import CORSMiddleware

from yaie import __version__
from yaie.engine.background.async_engine import AsyncEngine
from yaie.engine.background.rejections import Rejections
from yaie.parts import is_reference
from yaie.server.allowed import Allowed
from yaie.server.dialects.endpoints import MESSAGE_STREAM, RESPONSE_STREAM, dialects_router
from yaie.server.dialects.messages_errors import PATH as MESSAGES
from yaie.server.dialects.messages_errors import AnthropicErrors
from yaie.server.embeddings import embeddings_router
from yaie.server.health import health_router
from yaie.server.info import info_router
from yaie.server.keys import KeyGuard
from yaie.server.lenient.notes import IGNORED, MAX_TOKENS
from yaie.server.metrics import metrics_router
from yaie.server.next_token import next_token_router
from yaie.server.openapi.document import ABOUT, TAGS, UNKNOWN, UNKNOWN_IF_STRICT, install_document
from yaie.server.openapi.part import CHAT_STREAM, TEXT_STREAM, described_part
from yaie.server.request_body import BodyLimit, with_json
from yaie.server.request_head import HEADER, ConcurrencyLimit, Heads, OriginGuard
from yaie.server.service import Service
from yaie.server.settings import ServerSettings
from yaie.server.tokens import tokens_router
from yaie.server.watch import closed_watch_router, watch_router
from yaie.server.web_page import page_paths, page_routes

if TYPE_CHECKING:
    from yaie.core.contracts import ApiServer

OPEN_PATHS = frozenset({"/health", "/ready", "/metrics"})
"""For those who watch the server: without a key, and however busy it is."""


def create_app(
    engine: AsyncEngine,
    api: "ApiServer",
    settings: ServerSettings | None = None,
    *,
    is_inner: bool = False,
    **changes: Any,
) -> FastAPI:
    """The application around an engine, which may still be loading.

    api: the part that speaks OpenAI's API, `parts["api_server"]`. is_inner: another one stands before
    it, which has looked at Host and Origin. changes: to the settings.
    """
    settings = replace(settings or ServerSettings(), **changes)
    app = FastAPI(
        title="YAIE",
        version=__version__,
        description=ABOUT.format(
            limit=f"{settings.max_body_bytes:,}",
            unknown=UNKNOWN_IF_STRICT if settings.strict else UNKNOWN,
        ),
        openapi_tags=[{"name": name, "description": text} for name, text in TAGS.items()],
        separate_input_output_schemas=False,
        redirect_slashes=False,
        # These pages would load scripts from elsewhere; /openapi.json has all they say.
        docs_url=None,
        redoc_url=None,
    )
    service = Service(
        engine,
        settings.served_model_name,
        tool_parser=settings.tool_parser,
        reasoning_parser=settings.reasoning_parser,
        is_strict=settings.strict,
        hands_over=settings.role != "both",
        # A learner's part sends every piece itself: it is what they look at.
        event=api.event if is_reference(api) else None,
    )
    api.install_error_handlers(app)
    add_middleware(app, api, settings, engine.rejections, is_inner=is_inner)
    known = routers(service, api, is_strict=settings.strict)
    for router in known:
        app.include_router(router)
    if settings.web:
        if settings.shows_xray:
            app.include_router(watch_router(service, can_pace=settings.step or settings.is_private))
        else:
            app.include_router(closed_watch_router(api))
        # Before the files: these are all that is below /web.
        app.include_router(with_json(next_token_router(service, api), api))
        app.router.routes += page_routes()
    streams = (CHAT_STREAM, TEXT_STREAM, RESPONSE_STREAM, MESSAGE_STREAM)
    install_document(
        app,
        known,
        streams,
        open_paths=OPEN_PATHS,
        with_keys=bool(settings.api_key),
        is_strict=settings.strict,
    )
    return app


def routers(service: Service, api: "ApiServer", *, is_strict: bool = False) -> list[APIRouter]:
    """Of all endpoints that are for clients; the page has others. is_strict: what has no effect is
    refused."""
    part = described_part(api.make_router(service))
    conversing = (
        part,
        dialects_router(service, api),
        embeddings_router(service, api),
        tokens_router(service, api),
    )
    return [
        health_router(service),
        metrics_router(service),
        *(with_json(router, api, is_strict=is_strict) for router in conversing),
        info_router(service),
    ]


def add_middleware(
    app: FastAPI,
    api: "ApiServer",
    settings: ServerSettings,
    rejections: Rejections,
    *,
    is_inner: bool = False,
) -> None:
    """From the inside out: a client is let in by its head, its host and origin, then by its key, then if
    there is room."""
    app.add_middleware(
        BodyLimit,
        refuse=api.http_error,
        max_bytes=settings.max_body_bytes,
        seconds=settings.receive_timeout,
        rejections=rejections,
    )
    app.add_middleware(
        ConcurrencyLimit,
        refuse=api.http_error,
        limit=settings.max_concurrent_requests,
        exempt=OPEN_PATHS,
        rejections=rejections,
    )
    if settings.api_key:
        exempt = OPEN_PATHS | page_paths() if settings.web else OPEN_PATHS
        app.add_middleware(
            KeyGuard,
            refuse=api.http_error,
            keys=settings.api_key,
            exempt=exempt,
            are_tenants=settings.tenant_keys,
        )
    if settings.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.allowed_origins,
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=[HEADER, IGNORED, MAX_TOKENS],
        )
    if not is_inner:
        app.add_middleware(
            OriginGuard,
            refuse=api.http_error,
            allowed=Allowed(settings.hosts, settings.allowed_origins),
            exempt=OPEN_PATHS,
        )
    app.add_middleware(Heads, refuse=api.http_error, below={MESSAGES: AnthropicErrors})
