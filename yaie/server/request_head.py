"""What is decided by a request's head, once h11 has parsed it: its form, how large it may be, a name for
the request, who may send it, whether there is room, and what stands around the answers below its path.

Plain ASGI middleware, see `solutions/api_server/leaving.py` for the reason.
"""

import re
from collections.abc import Callable, Collection, Mapping
from contextvars import ContextVar
from urllib.parse import unquote_to_bytes
from uuid import uuid4

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from yaie.engine.background.rejections import Rejection, Rejections
from yaie.server.allowed import Allowed
from yaie.server.connections import MAX_HEAD_BYTES
from yaie.server.held_bodies import COME_BACK

Refuse = Callable[[int, str, dict[str, str] | None], ASGIApp]
"""The response with a status, a message and headers."""

HEADER = "X-Request-Id"
MAX_ID_CHARS = 128
MAX_HEADERS = 256
"""Headers of a request; vLLM's number. h11 bounds only the bytes of a head that comes in pieces."""
LOOKED_AT = (b"host", b"origin")
MOST_KNOWN = 256
"""Heads that are remembered, since clients send the same Host and Origin with each request."""

request_id: ContextVar[str | None] = ContextVar("request_id", default=None)
"""The id of the request that this task answers. Each request is a task of its own, as are those that
it starts, so it need not be reset."""

_UNSAFE = re.compile(r"[^A-Za-z0-9._:/+=@-]")


class RequestId:
    """Around everything. Each request has an id, to find its lines in the log: the client's own, or a
    fresh one. Every response carries it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        name = _given(scope) or uuid4().hex
        request_id.set(name)

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = name
            await send(message)

        await self._app(scope, receive, send_with_id)


def _given(scope: Scope) -> str:
    """The client's, without what could disturb a log or a header."""
    for name, value in scope["headers"]:
        if name == b"x-request-id":
            return _UNSAFE.sub("", value.decode("latin-1"))[:MAX_ID_CHARS]
    return ""


class Heads:
    """Refuses a head that is too large, and makes two forms of a request known to what is inside.

    400 for more than MAX_HEADERS headers or MAX_HEAD_BYTES bytes, and for a compressed body.
    Absolute form (`GET http://host/path`, RFC 9112, 3.2.2): as if only the path were there.
    HEAD (RFC 9110, 9.3.2): as if it were GET. Uvicorn leaves out the body of the answer.
    """

    def __init__(
        self, app: ASGIApp, refuse: Refuse, below: Mapping[str, Callable[[ASGIApp], ASGIApp]]
    ) -> None:
        """below: by path, what stands around the application for this path and those below it."""
        self._app = app
        self._refuse = refuse
        self._below = [(path, f"{path}/", around(app)) for path, around in below.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if complaint := _complaint(scope):
            await self._refuse(400, complaint, {"Connection": "close"})(scope, receive, send)
            return
        scope, app = _plain(scope), self._app
        for path, beginning, around in self._below:
            if scope["path"] == path or scope["path"].startswith(beginning):
                app = around
        await app(scope, receive, send)


def _complaint(scope: Scope) -> str | None:
    headers = scope["headers"]
    if len(headers) > MAX_HEADERS:
        return f"The request has {len(headers)} headers; at most {MAX_HEADERS} are allowed."
    size = len(scope["raw_path"]) + len(scope["query_string"])
    size += sum(len(name) + len(value) for name, value in headers)
    if size > MAX_HEAD_BYTES:
        return f"The request's head is longer than {MAX_HEAD_BYTES} bytes."
    for name, value in headers:
        if name == b"content-encoding" and value.lower() not in (b"", b"identity"):
            return "Content-Encoding: compressed bodies are not read; send the JSON as it is."
    return None


def _plain(scope: Scope) -> Scope:
    """The scope with path and method that routes know. A copy: the server keeps its own."""
    changes: dict[str, object] = {}
    scheme, separator, rest = scope["raw_path"].partition(b"://")
    if separator and scheme.lower() in (b"http", b"https"):
        _, _, path = rest.partition(b"/")
        changes["raw_path"] = raw_path = b"/" + path
        changes["path"] = unquote_to_bytes(raw_path).decode("utf-8", "replace")
    if scope["method"] == "HEAD":
        changes["method"] = "GET"
    return {**scope, **changes} if changes else scope


class OriginGuard:
    """Plain ASGI middleware: 403 for a Host that is not this server's, and for a foreign Origin."""

    def __init__(
        self,
        app: ASGIApp,
        refuse: Refuse,
        allowed: Allowed,
        exempt: Collection[str],
    ) -> None:
        """allowed: says which are. exempt: paths that tell nothing of requests."""
        self._app = app
        self._refuse = refuse
        self._allowed = allowed
        self._exempt = exempt
        self._known: set[tuple[tuple[bytes, bytes], ...]] = set()  # which were let in

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in self._exempt:
            await self._app(scope, receive, send)
            return
        heads = tuple((name, value) for name, value in scope["headers"] if name in LOOKED_AT)
        if heads not in self._known:
            if complaint := self._allowed.complaint(heads):
                await self._refuse(403, complaint, None)(scope, receive, send)
                return
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known.add(heads)
        await self._app(scope, receive, send)


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
