"""The deployment that Serve sends HTTP requests to: checks them, and passes each on to a replica.

The same middleware stands here as around `yaie serve`, so a wrong key or too large a body is refused
before it costs a replica anything.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from prometheus_client import Metric
from ray.exceptions import RayError, RayTaskError
from ray.serve.exceptions import (
    BackPressureError,
    DeploymentUnavailableError,
    ReplicaUnavailableError,
)
from ray.serve.handle import DeploymentHandle
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from yaie.cluster.exchange import Asked, ReplicaLostError
from yaie.cluster.forward import Forward
from yaie.cluster.watching import SECONDS, watching_router
from yaie.core.errors import EngineOverloadedError
from yaie.engine.background.rejections import no_rejections
from yaie.parts import load_part
from yaie.server.app import add_middleware
from yaie.server.logs import start_logging
from yaie.server.request_head import HEADER, RequestId
from yaie.server.settings import ServerSettings

if TYPE_CHECKING:
    from yaie.core.contracts import ApiServer

FULL = "Too many requests wait for a replica; try again later."


def ingress_app(replicas: "RayReplicas", api: "ApiServer", settings: ServerSettings) -> ASGIApp:
    """The application of the whole cluster."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    api.install_error_handlers(app)
    add_middleware(app, api, settings, no_rejections())
    app.include_router(watching_router(replicas, replicas.figures))
    app.router.default = Forward(replicas, api)
    return RequestId(app)


def without_id(app: ASGIApp) -> ASGIApp:
    """The same, but the answer's X-Request-Id is left to Serve's proxy, which would add a second one."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_without(message: Message) -> None:
            if message["type"] == "http.response.start":
                del MutableHeaders(scope=message)[HEADER]
            await send(message)

        await app(scope, receive, send_without)

    return wrapped


class Ingress:
    """What Serve makes of it; `serve.ingress` asks for the application."""

    def __init__(self, engines: DeploymentHandle, settings: ServerSettings, mine: str) -> None:
        """mine: see `EngineConfig`; the API's part makes the errors here as well."""
        start_logging(settings.log_level, None, settings.log_json)
        self._app = ingress_app(
            RayReplicas(engines), load_part("api_server", mine).package, settings
        )

    def __serve_build_asgi_app__(self) -> ASGIApp:
        return without_id(self._app)


class RayReplicas:
    """The replicas of a deployment (`forward.Replicas`), called over Ray."""

    def __init__(self, engines: DeploymentHandle) -> None:
        self._engines = engines
        self._streaming = engines.options(stream=True, method_name="answer")

    async def answer(self, asked: Asked) -> AsyncIterator[list[Message]]:
        """See `forward.Replicas`."""
        response = self._streaming.remote(asked)
        has_ended = False
        try:
            async for messages in response:
                yield messages
            has_ended = True
        except BackPressureError:
            has_ended = True
            raise EngineOverloadedError(FULL) from None
        except ReplicaLostError as error:
            has_ended = True
            # Ray's own error around it, which is of both classes, says nothing more.
            raise ReplicaLostError(error.message, error.replica) from None
        except RayTaskError:
            raise  # a mistake of ours
        except (RayError, ReplicaUnavailableError, DeploymentUnavailableError) as error:
            has_ended = True
            raise ReplicaLostError(f"{type(error).__name__}") from error
        finally:
            if not has_ended:
                response.cancel()

    async def everywhere(self, asked: Asked) -> list[tuple[int, bytes]]:
        """See `forward.Replicas`. A replica that dies meanwhile is left out."""
        return await self._broadcast("once", asked)

    async def figures(self) -> list[tuple[str, list[Metric]]]:
        """Of each replica: its number, and its metrics."""
        return await self._broadcast("metrics")

    async def _broadcast(self, method: str, *arguments: Any) -> list[Any]:
        try:
            answers = await self._engines.broadcast(method, *arguments).results_async(
                timeout_s=SECONDS, return_exceptions=True
            )
        except (DeploymentUnavailableError, TimeoutError, asyncio.TimeoutError):
            return []
        return [answer for answer in answers if not isinstance(answer, BaseException)]
