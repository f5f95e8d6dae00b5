"""What a client may send, and how much of it at a time: refuses before memory or time is gone.

Bodies above SMALL bytes are counted, and read in turns (`held_bodies.py`).

Plain ASGI middleware, see `solutions/api_server/leaving.py` for the reason.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from functools import partial

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from yaie.engine.background.rejections import Rejection, Rejections
from yaie.server.held_bodies import COME_BACK, SMALL, HeldBodies, HeldBody, RefusedError, too_large
from yaie.server.json_limits import MAX_DEPTH, refused_at

Refuse = Callable[[int, str, dict[str, str] | None], ASGIApp]
"""The response with a status, a message and headers."""

STALL_SECONDS = 30.0
"""A client that owes a body and sends nothing for so long is cut off."""
GIVE_BACK = "yaie.give_back"
"""In the scope of a request whose body is held: to be called once its bytes are not needed any more."""


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


class _HasLeftError(Exception):
    """The client, before its body was complete."""


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
        self._held = HeldBodies(max_bytes, rejections)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS"):
            await self._app(scope, receive, send)
            return
        try:
            announced = _announced(scope)
            if announced > self._max_bytes:
                raise too_large(self._max_bytes)
            if 0 < announced <= SMALL:  # and no larger: the HTTP server sees to that
                receive = _first(await self._read_small(scope, receive), receive)
                await self._app(scope, receive, send)
            else:
                await self._hold(scope, receive, send)
        except RefusedError as refused:
            await self._refuse(*refused.args_for_refuse)(scope, receive, send)
        except _HasLeftError:
            pass

    async def _read_small(self, scope: Scope, receive: Receive) -> bytes:
        content = b"".join([piece async for piece in _pieces(receive, self._seconds)])
        if not _is_simple(content) and (why := refused_at(content, scope["path"])) is not None:
            raise RefusedError(400, why)
        return content

    async def _hold(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read a body that may be larger, and hold it until it is given back."""
        body = HeldBody()
        try:
            content = await self._held.read(body, _pieces(receive, self._seconds), scope["path"])
            scope[GIVE_BACK] = partial(self._held.give_back, body)
            receive = _first(content, receive)
            del content  # whoever receives it has the only copy
            await self._app(scope, receive, send)
        finally:
            self._held.release(body)


async def _pieces(receive: Receive, seconds: float) -> AsyncIterator[bytes]:
    """A body as it comes. What is done between two pieces is not the client's time.

    Raises RefusedError if they come too late, or the server ends without waiting for the rest, and
    _HasLeftError.
    """
    left = seconds
    clock = asyncio.get_running_loop().time
    is_complete = False
    while not is_complete:
        begin = clock()
        try:
            message = await asyncio.wait_for(receive(), min(left, STALL_SECONDS))
        except asyncio.TimeoutError:
            late = f"has not come within {seconds:g} seconds"
            if left > STALL_SECONDS:
                late = f"is not complete, and nothing of it came for {STALL_SECONDS:g} seconds"
            raise RefusedError(408, f"The body {late}.", {"Connection": "close"}) from None
        except asyncio.CancelledError:
            raise RefusedError(503, "The server is shutting down.") from None
        left -= clock() - begin
        if message["type"] == "http.disconnect":
            raise _HasLeftError
        is_complete = not message.get("more_body", False)
        if message.get("body"):
            yield message.pop("body")


def _is_simple(content: bytes) -> bool:
    """Whether a small body is in UTF-8 and not nested too deeply, at a glance. It is too small for any
    other bound on JSON."""
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    is_wide = b"\0" in content[:4]  # UTF-16 or UTF-32, as JSON's first characters are ASCII
    return not is_wide and content.count(b"[") + content.count(b"{") <= MAX_DEPTH


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
