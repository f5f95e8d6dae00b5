"""What a client may send, and how much of it at a time: refuses before memory or time is gone.

Plain ASGI middleware, see `solutions/api_server/leaving.py` for the reason.
"""

import asyncio
import math
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from yaie.engine.background.rejections import Rejection, Rejections
from yaie.server.json_limits import looked_through
from yaie.system.thread_niceness import step_back

Refuse = Callable[[int, str, dict[str, str] | None], ASGIApp]
"""The response with a status, a message and headers."""

SMALL = 1 << 14
"""Bytes of a body that is read on the event loop, 10 ms for the worst; larger ones are read beside it,
one at a time (`body_reader`). So few may always come: they are not counted among those that are held."""
LARGE = 1 << 18
"""Bytes of a body that is not looked through on the event loop. What comes after is read in turns."""
LARGE_BYTES_A_SECOND = 64 << 20
"""How fast all large bodies together are read, and then parsed. As fast as clients can send, a few of
them would take a core for half a second, and the steps of every stream would wait."""
BODIES_AT_ONCE = 8
"""So many of the largest bodies may be on their way at the same time, and as many bytes of bodies up to
LARGE beside them. What has been read is given back."""
KEPT_AT_ONCE = 32
"""The same of what requests in progress keep of large bodies that have been read: their texts."""
STALL_SECONDS = 30.0
"""A client that owes a body and sends nothing for so long is cut off."""
GIVE_BACK = "yaie.give_back"
"""In the scope: to be called once the bytes of the body are not needed any more."""
COME_BACK = {"Retry-After": "1"}

large_bodies = ThreadPoolExecutor(1, "yaie-bodies", step_back)
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


class _Kind(IntEnum):
    """What the bytes of a body are counted among."""

    SMALL, MEDIUM, LARGE, READ = range(4)


@dataclass(slots=True)
class _Body:
    """What has come of a body."""

    chunks: list[bytes] = field(default_factory=list)
    size: int = 0
    kind: _Kind = _Kind.SMALL


class BodyLimit:
    """Reads a body before any work on it, because these come before any other complaint:

    413 if it is announced or grows larger than `max_bytes`, 408 if it has not come within `seconds` or
    nothing of it for STALL_SECONDS, 503 if too many bytes are held for other requests, 400 if it is not
    in UTF-8, nested too deeply or has too many parts.
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
        self._held = [0] * len(_Kind)
        self._most = (math.inf, BODIES_AT_ONCE, BODIES_AT_ONCE, KEPT_AT_ONCE)  # of the largest
        self._looking = asyncio.Lock()  # through one of medium size at a time
        self._next_turn = 0.0  # of large bodies, by the loop's clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS"):
            await self._app(scope, receive, send)
            return
        body = _Body()
        try:
            content = await self._read(scope, receive, body)
            if content is not None:
                scope[GIVE_BACK] = partial(self._give_back, body)
                receive = _first(content, receive)
                del content  # whoever receives it has the only copy
                await self._app(scope, receive, send)
        except _RefusedError as refused:
            await self._refuse(*refused.args_for_refuse)(scope, receive, send)
        finally:
            self._held[body.kind] -= body.size

    async def _read(self, scope: Scope, receive: Receive, body: _Body) -> bytes | None:
        """All of a body; None if the client left before it was complete. Raises _RefusedError."""
        if _announced(scope) > self._max_bytes:
            raise self._too_large()
        try:
            has_left = await self._fill(receive, body)
        except asyncio.CancelledError:  # the server ends without waiting for the rest
            raise _RefusedError(503, "The server is shutting down.") from None
        if has_left:
            return None
        if body.size <= SMALL:
            refusal = looked_through(body.chunks, scope["path"])
        elif body.size <= LARGE:
            async with self._looking:
                refusal = looked_through(body.chunks, scope["path"])
                await asyncio.sleep(0)  # the next one in another turn of the loop, after all others
        else:
            refusal = await asyncio.get_running_loop().run_in_executor(
                large_bodies, looked_through, body.chunks, scope["path"]
            )
        if refusal is not None:
            raise _RefusedError(400, refusal)
        if body.size > LARGE:
            await self._wait_for_turn(body.size)  # the application reads it in one go
        return body.chunks.pop()

    async def _fill(self, receive: Receive, body: _Body) -> bool:
        """Read to the end; whether the client left before. Raises _RefusedError."""
        seconds = self._seconds
        clock = asyncio.get_running_loop().time
        while True:
            begin = clock()
            try:
                message = await asyncio.wait_for(receive(), min(seconds, STALL_SECONDS))
            except asyncio.TimeoutError:
                late = f"has not come within {self._seconds:g} seconds"
                if seconds > STALL_SECONDS:
                    late = f"is not complete, and nothing of it came for {STALL_SECONDS:g} seconds"
                raise _RefusedError(408, f"The body {late}.", {"Connection": "close"}) from None
            seconds -= clock() - begin
            if message["type"] == "http.disconnect":
                return True
            size = len(message.get("body", b""))
            if size:
                body.chunks.append(message["body"])
                self._take(body, size)
            if not message.get("more_body", False):
                return False
            if body.size > LARGE:
                await self._wait_for_turn(size)  # which is not the client's time

    def _take(self, body: _Body, size: int) -> None:
        """Count what has come. Raises _RefusedError if it is too much."""
        self._move(body, _kind_of(body.size + size), body.size + size)
        if body.size > self._max_bytes:
            raise self._too_large()
        # What is read keeps the place of what comes: or a body would be refused once it is there.
        kept = body.size + self._held[_Kind.READ] if body.kind is _Kind.LARGE else 0
        if (
            self._held[body.kind] > self._most[body.kind] * self._max_bytes
            or kept > self._most[_Kind.READ] * self._max_bytes
        ):
            self._rejections[Rejection.MAX_BODY_BYTES] += 1
            raise _RefusedError(503, "The server holds too many large requests.", COME_BACK)

    def _move(self, body: _Body, kind: _Kind, size: int) -> None:
        self._held[body.kind] -= body.size
        body.kind, body.size = kind, size
        self._held[body.kind] += body.size

    def _give_back(self, body: _Body) -> None:
        """The bytes are gone. What was read of a large body stays with its request, and counts there."""
        if body.kind is not _Kind.READ:
            is_large = body.kind is _Kind.LARGE
            self._move(body, _Kind.READ, body.size if is_large else 0)

    async def _wait_for_turn(self, num_bytes: int) -> None:
        """Wait until so many bytes of a large body, and those that came before, may have been read."""
        now = asyncio.get_running_loop().time()
        self._next_turn = max(self._next_turn, now) + num_bytes / LARGE_BYTES_A_SECOND
        await asyncio.sleep(self._next_turn - now)

    def _too_large(self) -> _RefusedError:
        message = f"The body is larger than {self._max_bytes} bytes."
        return _RefusedError(413, message, {"Connection": "close"})


def _kind_of(size: int) -> _Kind:
    if size <= SMALL:
        return _Kind.SMALL
    return _Kind.MEDIUM if size <= LARGE else _Kind.LARGE


def _first(content: bytes, receive: Receive) -> Receive:
    """A `receive` that gives this body, then what comes behind it: that the client leaves."""
    waiting: list[Message] = [{"type": "http.request", "body": content, "more_body": False}]

    async def receive_all() -> Message:
        return waiting.pop() if waiting else await receive()

    return receive_all


def _announced(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value[:20])
    return 0
