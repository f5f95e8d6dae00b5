"""Passes HTTP requests on to replicas and their answers back, and asks again where a replica has died.

An ASGI application behind the same middleware as `yaie serve`. How a replica is called it is given as
`Replicas`, so it can be tested without Ray.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from yaie.cluster.exchange import Asked, ReplicaLostError, http_scope
from yaie.cluster.lost import EVENT_END, died, last_events
from yaie.cluster.prefixes import chain
from yaie.cluster.prompt_start import prompt_start
from yaie.core.errors import EngineOverloadedError, YaieError
from yaie.server.held_bodies import COME_BACK, LARGE

if TYPE_CHECKING:
    from yaie.core.contracts import ApiServer

logger = logging.getLogger(__name__)

MOST_ATTEMPTS = 3
"""Replicas that one request is sent to. Several may be lost at once, but a request that kills every
engine must not meet them all."""
EVENTS = "text/event-stream"


class Replicas(Protocol):
    """The replicas, seen from the ingress."""

    def answer(self, asked: Asked) -> AsyncIterator[list[Message]]:
        """What the chosen replica's `answer` yields. Raises ReplicaLostError if it has died, whatever
        has come of it, and EngineOverloadedError if too many requests wait for a replica."""
        ...

    async def everywhere(self, asked: Asked) -> list[tuple[int, bytes]]:
        """Status and body of each replica's answer; none if there are no replicas."""
        ...


@dataclass(slots=True)
class Sent:
    """What a client has got of an answer."""

    has_begun: bool = False
    is_stream: bool = False
    num_events: int = 0

    def add(self, message: Message) -> None:
        """One more of ASGI's messages."""
        if message["type"] == "http.response.start":
            self.has_begun = True
            media_type = Headers(raw=message["headers"]).get("content-type", "")
            self.is_stream = media_type.startswith(EVENTS)
        elif self.is_stream:
            self.num_events += message["body"].count(EVENT_END)


class Forward:
    """One HTTP request after the other, each to a replica of its own."""

    def __init__(self, replicas: Replicas, api: "ApiServer") -> None:
        """api: makes OpenAI's error objects."""
        self._replicas = replicas
        self._api = api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, unless the client leaves: then the replica is told by the cancellation."""
        if scope["type"] != "http":
            return
        try:
            body = await Request(scope, receive).body()
        except ClientDisconnect:
            return
        answering = asyncio.ensure_future(self._answer(await _asked(scope, body), send))
        leaving = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                answering.result()
        finally:
            answering.cancel()
            leaving.cancel()
            await asyncio.gather(answering, leaving, return_exceptions=True)

    async def _answer(self, asked: Asked, send: Send) -> None:
        sent = Sent()
        for attempt in range(1, MOST_ATTEMPTS + 1):
            try:
                await self._pass_on(asked, sent, send)
                return
            except EngineOverloadedError as error:
                await self._refuse(error, send)
                return
            except ReplicaLostError as error:
                logger.warning(
                    "A replica was lost (%s, attempt %d): %s", asked.scope["path"], attempt, error
                )
                if sent.has_begun:
                    await self._end(asked, sent, send)
                    return
                asked = replace(asked, avoid=asked.avoid | {error.replica})
        await self._refuse(died(), send)

    async def _pass_on(self, asked: Asked, sent: Sent, send: Send) -> None:
        async with aclosing(self._replicas.answer(asked)) as pieces:  # type: ignore[type-var]
            async for messages in pieces:
                for message in messages:
                    sent.add(message)
                    await send(message)
        if not sent.has_begun:
            raise ReplicaLostError("it sent nothing")
        # Only now: the client may leave then, and that would end the replica's.
        await send(_body(b"", False))

    async def _end(self, asked: Asked, sent: Sent, send: Send) -> None:
        """The rest of what the lost replica has begun. Of anything but a stream of events nothing can be
        said any more: the connection is cut, and the client sees that there should have been more."""
        if not sent.is_stream:
            raise died()
        error = self._api.error_body(died())["error"]
        await send(_body(last_events(asked.scope["path"], error, sent.num_events), False))

    async def _refuse(self, error: YaieError, send: Send) -> None:
        """OpenAI's error object; middleware translates it where another one is wanted."""
        response = JSONResponse(self._api.error_body(error), error.status, COME_BACK)
        await send(
            {"type": "http.response.start", "status": error.status, "headers": response.raw_headers}
        )
        await send(_body(bytes(response.body), False))


async def _asked(scope: Scope, body: bytes) -> Asked:
    if len(body) <= LARGE:
        beginnings = chain(prompt_start(body))
    else:
        beginnings = await asyncio.to_thread(lambda: chain(prompt_start(body)))
    asked = http_scope(
        scope["method"],
        scope["path"],
        scope.get("raw_path"),
        scope["query_string"],
        scope["headers"],
    )
    return Asked(asked, body, beginnings)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _body(body: bytes, more: bool) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": more}
