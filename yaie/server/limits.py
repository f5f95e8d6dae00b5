"""What a client may send, and how much of it at a time: refuses before memory or time is gone.

Plain ASGI middleware, see `solutions/api_server/leaving.py` for the reason.
"""

import asyncio
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from yaie.core.priority import step_back
from yaie.engine.background.rejections import Rejection, Rejections
from yaie.server.bodies import looked_through

Refuse = Callable[[int, str, dict[str, str] | None], ASGIApp]
"""The response with a status, a message and headers."""

LARGE = 1 << 18
"""Bytes of a body that is not looked through on the event loop. What comes after is read in turns."""
LARGE_BYTES_A_SECOND = 64 << 20
"""How fast all large bodies together are read, and then parsed. As fast as clients can send, a few of
them would take a core for half a second, and the steps of every stream would wait."""
BODIES_AT_ONCE = 8
"""How many of the largest bodies may be held at the same time."""
COME_BACK = {"Retry-After": "1"}

_large_bodies = ThreadPoolExecutor(1, "yaie-bodies", step_back)
"""Looks through one after the other: together they would keep the engine from the interpreter."""


class ConcurrencyLimit:
    """503 while `limit` requests are in progress. Paths in `exempt` are always answered."""

    def __init__(
        self,
        app: ASGIApp,
        refuse: Refuse,
        limit: int,
        exempt: Collection[str],
        rejections: Rejections,
    ) -> None:
        self._app = app
        self._refuse = refuse
        self._limit = limit
        self._exempt = exempt
        self._rejections = rejections
        self._count = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in self._exempt:
            await self._app(scope, receive, send)
        elif self._count >= self._limit:
            self._rejections[Rejection.MAX_CONCURRENT_REQUESTS] += 1
            message = f"{self._count} requests are in progress already; try again later."
            await self._refuse(503, message, COME_BACK)(scope, receive, send)
        else:
            self._count += 1
            try:
                await self._app(scope, receive, send)
            finally:
                self._count -= 1


class _RefusedError(Exception):
    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        self.args_for_refuse = status, message, headers


@dataclass(slots=True)
class _Body:
    """What has come of a body."""

    chunks: list[bytes] = field(default_factory=list)
    size: int = 0


class BodyLimit:
    """Reads a body before any work on it, because these come before any other complaint:

    413 if it is announced or grows larger than `max_bytes`, 408 if it has not come within `seconds`,
    503 if too many bytes are held for other requests, 400 if it is nested too deeply or has too many
    parts.
    """

    def __init__(
        self,
        app: ASGIApp,
        refuse: Refuse,
        max_bytes: int,
        seconds: float,
        rejections: Rejections,
    ) -> None:
        self._app = app
        self._refuse = refuse
        self._max_bytes = max_bytes
        self._seconds = seconds
        self._rejections = rejections
        self._held = 0
        self._next_turn = 0.0  # of large bodies, by the loop's clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS"):
            await self._app(scope, receive, send)
            return
        body = _Body()
        try:
            content = await self._read(scope, receive, body)
            if content is not None:
                message = {"type": "http.request", "body": content, "more_body": False}
                await self._app(scope, _first(message, receive), send)
        except _RefusedError as refused:
            await self._refuse(*refused.args_for_refuse)(scope, receive, send)
        finally:
            self._held -= body.size

    async def _read(self, scope: Scope, receive: Receive, body: _Body) -> bytes | None:
        """All of a body; None if the client left before it was complete. Raises _RefusedError."""
        if _announced(scope) > self._max_bytes:
            raise self._too_large()
        try:
            left = await self._fill(receive, body)
        except asyncio.TimeoutError:
            message = f"The body has not come within {self._seconds:g} seconds."
            raise _RefusedError(408, message, {"Connection": "close"}) from None
        except asyncio.CancelledError:  # the server ends without waiting for the rest
            raise _RefusedError(503, "The server is shutting down.") from None
        if left:
            return None
        if body.size <= LARGE:
            content, refusal = looked_through(body.chunks)
        else:
            loop = asyncio.get_running_loop()
            content, refusal = await loop.run_in_executor(
                _large_bodies, looked_through, body.chunks
            )
        if refusal is not None:
            raise _RefusedError(400, refusal)
        if body.size > LARGE:
            await self._wait_for_turn(body.size)  # the application parses it in one go
        return content

    async def _fill(self, receive: Receive, body: _Body) -> bool:
        """Read to the end; whether the client left before. Raises TimeoutError if it takes too long."""
        clock = asyncio.get_running_loop().time
        begin = clock()
        left = await asyncio.wait_for(self._take(receive, body, LARGE), self._seconds)
        seconds = self._seconds - (clock() - begin)
        while left is None:
            before = body.size
            begin = clock()
            left = await asyncio.wait_for(self._take(receive, body, 0), seconds)
            seconds -= clock() - begin
            await self._wait_for_turn(body.size - before)  # which is not the client's time
        return left

    async def _take(self, receive: Receive, body: _Body, most: int) -> bool | None:
        """Read on until there are more bytes than `most`; whether the client left, None if there is more
        to come. Raises _RefusedError."""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return True
            chunk = message.get("body", b"")
            body.chunks.append(chunk)
            body.size += len(chunk)
            self._held += len(chunk)
            if body.size > self._max_bytes:
                raise self._too_large()
            if self._held > BODIES_AT_ONCE * self._max_bytes:
                self._rejections[Rejection.MAX_BODY_BYTES] += 1
                raise _RefusedError(503, "The server holds too many large requests.", COME_BACK)
            if not message.get("more_body", False):
                return False
            if body.size > most:
                return None

    async def _wait_for_turn(self, num_bytes: int) -> None:
        """Wait until so many bytes of a large body, and those that came before, may have been read."""
        now = asyncio.get_running_loop().time()
        self._next_turn = max(self._next_turn, now) + num_bytes / LARGE_BYTES_A_SECOND
        await asyncio.sleep(self._next_turn - now)

    def _too_large(self) -> _RefusedError:
        message = f"The body is larger than {self._max_bytes} bytes."
        return _RefusedError(413, message, {"Connection": "close"})


def _first(message: Message, receive: Receive) -> Receive:
    """A `receive` that gives this message, then what comes behind it: that the client leaves."""
    waiting = [message]

    async def receive_all() -> Message:
        return waiting.pop() if waiting else await receive()

    return receive_all


def _announced(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value[:20])
    return 0
