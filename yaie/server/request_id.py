"""A name for each HTTP request, to find its lines in the log: the client's own, or a fresh one."""

import re
from contextvars import ContextVar
from uuid import uuid4

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER = "X-Request-Id"
MAX_CHARS = 128

current: ContextVar[str | None] = ContextVar("request_id", default=None)
"""The id of the request that this task answers. Each request is a task of its own, as are those that
it starts, so it need not be reset."""

_UNSAFE = re.compile(r"[^A-Za-z0-9._:/+=@-]")


class RequestId:
    """Plain ASGI middleware around everything: every response carries the id."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _given(scope) or uuid4().hex
        current.set(request_id)

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = request_id
            await send(message)

        await self._app(scope, receive, send_with_id)


def _given(scope: Scope) -> str:
    """The client's, without what could disturb a log or a header."""
    for name, value in scope["headers"]:
        if name == b"x-request-id":
            return _UNSAFE.sub("", value.decode("latin-1"))[:MAX_CHARS]
    return ""
