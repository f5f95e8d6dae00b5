"""`/watch`: an engine's steps as they happen, as server-sent events; and its pace in step mode.

The page is who asks for these, so they are not in `/openapi.json`. Records are those of
`yaie.core.records`.
"""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.responses import Response, StreamingResponse

from yaie.core.errors import InvalidRequestError
from yaie.server.service import Service

if TYPE_CHECKING:
    from yaie.core.contracts import ApiServer

CLOSED = (
    "The X-ray is off, because it shows all requests to everyone who may ask: a server that other "
    "machines reach, or that asks for keys, has it only with `yaie serve --xray`."
)


class Paced(BaseModel):
    """steps: how many more were asked for; None: all that come."""

    steps: int | None


STEP_MODE = "X-Step-Mode"
"""Says on `/watch/events` that the page may pace the engine."""


def watch_router(service: Service, *, can_pace: bool) -> APIRouter:
    """The router with these. can_pace: whether the page may have the engine wait for each step, which
    stops everybody's requests."""
    router = APIRouter(prefix="/watch", include_in_schema=False)

    @router.get("/events")
    async def events(every: bool = False) -> StreamingResponse:
        """Header and snapshot, then records as they come. every: each step by itself, as the page has
        it; else steps that are too short for that share a record."""
        assert service.engine.info  # or it is still loading, and raises
        lines = service.engine.watchers.watch(every=every)
        first = await anext(lines)
        return StreamingResponse(
            _events(first, lines),
            media_type="text/event-stream",
            # Proxies must pass every event on as it comes.
            headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
            | ({STEP_MODE: "offered"} if can_pace else {}),
        )

    def paced(steps: int | None) -> Paced:
        if not can_pace:
            raise InvalidRequestError(
                "Step mode would stop everybody's requests, so this server, which others reach or which "
                "asks for keys, has it only with `yaie serve --step`."
            )
        service.engine.pace(steps)
        return Paced(steps=steps)

    @router.post("/step")
    async def step() -> Paced:
        """Compute one step, if there is anything to compute."""
        return paced(1)

    @router.post("/resume")
    async def resume() -> Paced:
        """Compute whatever comes, without a stop."""
        return paced(None)

    @router.post("/pause")
    async def pause() -> Paced:
        """Compute nothing more until told."""
        return paced(0)

    return router


def closed_watch_router(api: "ApiServer") -> APIRouter:
    """What says why there is nothing to watch."""
    router = APIRouter(prefix="/watch", include_in_schema=False)

    @router.api_route("/{what}", methods=["GET", "POST"])
    async def closed(what: str) -> Response:
        return api.http_error(403, CLOSED)

    return router


async def _events(first: list[bytes], rest: AsyncIterator[list[bytes]]) -> AsyncIterator[bytes]:
    async with aclosing(rest):  # type: ignore[type-var]
        yield _as_events(first)
        async for lines in rest:
            yield _as_events(lines)


def _as_events(lines: list[bytes]) -> bytes:
    return b"".join(b"data: %b\n\n" % line for line in lines)
