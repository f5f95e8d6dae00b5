"""Parses large bodies with pydantic's JSON parser, which keeps the event loop for half as long or less.

Both parsers give the same values for what both take. What pydantic's refuses (broken JSON, UTF-16, half
of a surrogate pair) goes to Python's, which takes it or says why not: clients see no difference.
"""

from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute
from pydantic_core import from_json
from starlette.requests import Request
from starlette.responses import Response

from yaie.server.limits import LARGE


class LargeJsonRequest(Request):
    """A request whose body is parsed as the module says."""

    async def json(self) -> Any:
        """The parsed body. Raises json.JSONDecodeError, UnicodeDecodeError or ValueError."""
        if not hasattr(self, "_json"):
            body = await self.body()
            if len(body) > LARGE:
                with suppress(ValueError):
                    self._json = from_json(body, cache_strings=False)
        return await super().json()


class LargeJsonRoute(APIRoute):
    """FastAPI's route, with that request in the place of its own."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_large(request: Request) -> Response:
            return await handle(LargeJsonRequest(request.scope, request.receive))

        return handle_large


def with_large_json(router: APIRouter) -> APIRouter:
    """The same router, whose routes parse bodies so once it is included. It need not know: it may be a
    learner's."""
    for route in router.routes:
        if type(route) is APIRoute:
            route.__class__ = LargeJsonRoute
    return router
