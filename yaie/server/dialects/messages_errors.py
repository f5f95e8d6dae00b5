"""Failures of the paths below `/v1/messages` in Anthropic's shape.

They come from everywhere: a missing key, too large a body, a wrong field, a full queue. Each is made in
the one shape that all other endpoints have, and translated on its way out.
"""

import json
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from yaie.server.request_head import request_id

Json = dict[str, Any]

PATH = "/v1/messages"
REQUEST_ID = "request-id"
OVERLOADED = 529
TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    504: "timeout_error",
    OVERLOADED: "overloaded_error",
}
"""Of the other statuses: `invalid_request_error` below 500, and `api_error` from there on."""
UNKNOWN: Json = {"message": "Internal server error."}


class AnthropicErrors:
    """Plain ASGI middleware around what answers these paths: answers with a status from 400 on are
    translated."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        translator = _Translator(send)
        try:
            await self._app(scope, receive, translator.send)
        except Exception:
            if not translator.has_begun:
                status, told = translated(500, UNKNOWN)
                await JSONResponse(told, status)(scope, receive, translator.pass_on)
            raise  # to be logged


class _Translator:
    """Passes an answer on, an error only once it is complete."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._start: Message | None = None  # of an error
        self._body = b""
        self.has_begun = False

    async def send(self, message: Message) -> None:
        """Take the next of ASGI's messages."""
        self.has_begun = True
        if message["type"] == "http.response.start" and message["status"] >= 400:
            self._start = message
            return
        if self._start is None:
            await self.pass_on(message)
            return
        self._body += message.get("body", b"")
        if not message.get("more_body", False):
            start, body = _translated_answer(self._start, self._body)
            await self.pass_on(start)
            await self.pass_on({"type": "http.response.body", "body": body})

    async def pass_on(self, message: Message) -> None:
        """Send it, with a header that Anthropic's clients read the request's id from."""
        if message["type"] == "http.response.start" and (name := request_id.get()):
            MutableHeaders(scope=message)[REQUEST_ID] = name
        await self._send(message)


def translated(status: int, error: Json) -> tuple[int, Json]:
    """Status and body of a failure. error: the object that other endpoints put into "error".

    A full queue is 529, for which clients have an exception of its own.
    """
    if status == 503 and error.get("type") == TYPES[OVERLOADED]:
        status = OVERLOADED
    kind = TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    return status, _shape(kind, error["message"])


def error_in_stream(error: Json) -> Json:
    """The event of a failure for which it is too late to have a status."""
    if error["code"] == "request_timeout":
        return _shape("timeout_error", error["message"])
    known = ("overloaded_error", "invalid_request_error")
    return _shape(error["type"] if error["type"] in known else "api_error", error["message"])


def _shape(kind: str, message: str) -> Json:
    detail = {"type": kind, "message": message}
    return {"type": "error", "error": detail, "request_id": request_id.get()}


def _translated_answer(start: Message, body: bytes) -> tuple[Message, bytes]:
    try:
        error = json.loads(body)["error"]
        status, told = translated(start["status"], error)
    except (ValueError, TypeError, KeyError, AttributeError):
        return start, body  # not made by us: to a client that left, or to a preflight
    response = JSONResponse(told)
    start = {**start, "status": status}
    MutableHeaders(scope=start)["content-length"] = str(len(response.body))
    return start, bytes(response.body)
