"""What is left to do with a request's head once h11 has parsed it: its form, and how large it may be.

Plain ASGI middleware, outside of all other that looks at a path or a method.
"""

from urllib.parse import unquote_to_bytes

from starlette.types import ASGIApp, Receive, Scope, Send

from yaie.server.connections import MAX_HEAD_BYTES
from yaie.server.limits import Refuse

MAX_HEADERS = 256
"""Headers of a request; vLLM's number. h11 bounds only the bytes of a head that comes in pieces."""


class Heads:
    """Refuses a head that is too large, and makes two forms of a request known to what is inside.

    400 for more than MAX_HEADERS headers or MAX_HEAD_BYTES bytes, and for a compressed body.
    Absolute form (`GET http://host/path`, RFC 9112, 3.2.2): as if only the path were there.
    HEAD (RFC 9110, 9.3.2): as if it were GET. Uvicorn leaves out the body of the answer.
    """

    def __init__(self, app: ASGIApp, refuse: Refuse) -> None:
        self._app = app
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif complaint := _complaint(scope):
            await self._refuse(400, complaint, {"Connection": "close"})(scope, receive, send)
        else:
            await self._app(_plain(scope), receive, send)


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
