"""Refuses a body that is too large before it fills the memory."""

from collections.abc import Callable

from fastapi import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY_BYTES = 16 * 2**20


class BodyLimit:
    """Plain ASGI middleware: 413 as soon as a body is announced or grows beyond `max_bytes`."""

    def __init__(
        self,
        app: ASGIApp,
        refuse: Callable[[int, str], ASGIApp],
        max_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        """`refuse`: the response with a status and a message."""
        self._app = app
        self._refuse = refuse
        self._max_bytes = max_bytes
        self._message = f"The body is larger than {max_bytes} bytes."

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if _announced(scope) > self._max_bytes:
            response = self._refuse(413, self._message)
            await response(scope, receive, send)
        else:
            await self._app(scope, self._counted(receive), send)

    def _counted(self, receive: Receive) -> Receive:
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._max_bytes:
                raise HTTPException(413, self._message)  # the one exception that FastAPI lets pass
            return message

        return counted


def _announced(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0
