"""Reads the JSON body of a request as what its endpoint takes, before FastAPI does.

    small, and right as it is    parsed and validated here
    any other small one          here, with all that clients send beyond the API (`lenient`)
    above SMALL bytes            the same beside the event loop (`body_reader`)

The endpoints need not know: one that takes a type gets a value of it in any case. It may be a learner's.
"""

import email.message
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, ClassVar

from fastapi import APIRouter
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic_core import from_json
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from yaie.core.errors import YaieError
from yaie.server.body_process import as_wanted, parsed
from yaie.server.body_reader import reader_of
from yaie.server.held_bodies import SMALL
from yaie.server.lenient.notes import Notes, current_notes
from yaie.server.lenient.validated import adapter, untouched_names
from yaie.server.limits import GIVE_BACK
from yaie.server.wanted import Wanted, module_name, wanted_by
from yaie.server.work import check_work

if TYPE_CHECKING:
    from yaie.core.contracts import ApiServer

_NOTHING = object()


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
