"""The body of a request: `BodyLimit` has it within bounds, and `JsonRoute` reads it as what its endpoint
takes, before FastAPI does.

    small, and right as it is    parsed and validated here
    any other small one          here, with all that clients send beyond the API (`lenient`)
    above SMALL bytes            held (`held_bodies`), and the same beside the event loop (`body_reader`)

The endpoints need not know: one that takes a type gets a value of it in any case. It may be a learner's.
"""

import asyncio
import email.message
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from fastapi import APIRouter
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic_core import from_json
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from yaie.core.errors import YaieError
from yaie.engine.background.rejections import Rejections
from yaie.server.body_process import as_wanted, parsed
from yaie.server.body_reader import reader_of
from yaie.server.held_bodies import SMALL, HeldBodies, HeldBody, RefusedError, too_large
from yaie.server.json_limits import MAX_DEPTH, refused_at
from yaie.server.lenient.notes import Notes, current_notes
from yaie.server.lenient.validated import adapter, untouched_names
from yaie.server.request_head import Refuse
from yaie.server.wanted import Wanted, module_name, wanted_by
from yaie.server.work import check_work

if TYPE_CHECKING:
    from yaie.core.contracts import ApiServer

STALL_SECONDS = 30.0
"""A client that owes a body and sends nothing for so long is cut off."""
GIVE_BACK = "yaie.give_back"
"""In the scope of a request whose body is held: to be called once its bytes are not needed any more."""
_NOTHING = object()


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
            del content  # or there would be two: `receive` gives away its own
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


class JsonRequest(Request):
    """A request whose body is there already (`BodyLimit`), in one message."""

    _value: Any = _NOTHING

    async def body(self) -> bytes:
        """The body, without another copy of it; a stand-in once it has been read."""
        if not hasattr(self, "_body"):
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            self._body: bytes = message.get("body", b"")
            if message.get("more_body", False):  # without that middleware
                self._body += b"".join([chunk async for chunk in self.stream()])
        return self._body

    async def json(self) -> Any:
        """What was read; raises what `parsed` does if nothing was."""
        if self._value is not _NOTHING:
            return self._value
        self._value = parsed(await self.body())
        self._give_back()
        return self._value

    async def read(self, wanted: Wanted | None) -> None:
        """Read the body as what the endpoint takes. Raises what FastAPI raises of a wrong one; of a
        small one that is no JSON nothing, which FastAPI will find."""
        body = await self.body()
        if not _is_json(self.headers.get("content-type")):
            return
        if len(body) <= SMALL and wanted is not None and self._reads_as_it_is(body, wanted):
            return
        if len(body) <= SMALL or wanted is None:
            try:
                value = await self.json()
            except (ValueError, RecursionError):
                return
            if wanted is None:
                check_work(value)
            elif value is not None:  # which FastAPI takes for no body
                self._value = as_wanted(value, wanted)
            return
        self._body = b"0"  # it is not empty
        work = reader_of(body).read_beside(body, wanted)
        del body
        self._value = await work
        self._give_back()

    def _reads_as_it_is(self, body: bytes, wanted: Wanted) -> bool:
        """Whether a small body is right as it is: then it has been read. What `check_work` bounds fits
        into no small body, but for the depth of a call's arguments, which are validated."""
        try:
            value = from_json(body, cache_strings="keys")
            if not isinstance(value, dict) or None in value.values():
                return False
            if not value.keys() <= untouched_names(wanted.kind, wanted.dialect):
                return False
            self._value = adapter(wanted.kind).validate_python(value, from_attributes=True)
        except (ValueError, RecursionError, RequestValidationError, YaieError):
            return False  # those who know what else there is say why, or make it right
        self._give_back()
        return True

    def _give_back(self) -> None:
        self._body = b"0"
        if (give_back := self.scope.get(GIVE_BACK)) is not None:
            give_back()


class JsonRoute(APIRoute):
    """FastAPI's route, with that request in the place of its own."""

    api: ClassVar[str | None] = None
    is_strict: ClassVar[bool] = False

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        wanted = wanted_by(self, self.api, is_strict=self.is_strict)

        async def handle_json(request: Request) -> Response:
            ours = JsonRequest(request.scope, request.receive)
            notes = Notes(self.is_strict)
            current_notes.set(notes)
            await ours.read(wanted)
            response = await handle(ours)
            if notes.ignored or notes.max_tokens is not None:
                notes.log()
                response.headers.update(notes.headers)
            return response

        return handle_json


def with_json(router: APIRouter, api: "ApiServer", *, is_strict: bool = False) -> APIRouter:
    """The same router, whose routes read bodies so once it is included. api: the part that speaks
    OpenAI's API. is_strict: what has no effect is refused."""
    about = {"api": module_name(api), "is_strict": is_strict}
    kind = type("JsonRoute", (JsonRoute,), about)
    for route in router.routes:
        if type(route) is APIRoute:
            route.__class__ = kind
    return router


def _is_json(content_type: str | None) -> bool:
    """As FastAPI decides it."""
    if not content_type or content_type == "application/json":
        return bool(content_type)
    message = email.message.Message()
    message["content-type"] = content_type
    kind, subtype = message.get_content_maintype(), message.get_content_subtype()
    return kind == "application" and (subtype == "json" or subtype.endswith("+json"))
