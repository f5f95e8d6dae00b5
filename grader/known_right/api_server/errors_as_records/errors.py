"""Another design: an error object is a record that a function per class of exception fills in.

The reference asks `isinstance` in each function, and Starlette writes its JSON; here json.dumps does.
"""

import json
import logging
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import singledispatch
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from yaie.core.errors import (
    EngineOverloadedError,
    EngineUnavailableError,
    InvalidRequestError,
    YaieError,
)

logger = logging.getLogger(__name__)

MAX_MESSAGE_CHARS = 500
RETRY_AFTER_SECONDS = "1"
CLIENT_CLOSED_REQUEST = 499
HALF_A_PAIR = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Told:
    """What a client is told."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None

    def body(self) -> dict[str, Any]:
        """As an error object."""
        fields = asdict(self)
        for name in ("message", "param"):
            fields[name] = fields[name] and clean(fields[name])
        return {"error": fields}


def error_object(
    message: str, *, type: str, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """The body of an error response."""
    return Told(message, type, param, code).body()


def clean(text: str) -> str:
    """A text that can be sent, whatever a client wrote."""
    if len(text) > MAX_MESSAGE_CHARS:
        text = f"{text[: MAX_MESSAGE_CHARS - 1]}\N{HORIZONTAL ELLIPSIS}"
    return HALF_A_PAIR.sub("?", text)


@singledispatch
def _told(error: Exception) -> tuple[Told, int, bool]:
    """(what is told, the status, whether it passes by itself)."""
    return Told("Internal server error.", "server_error", None, "internal_error"), 500, False


@_told.register
def _(error: YaieError) -> tuple[Told, int, bool]:
    told = Told(error.message, error.type, error.param, error.code)
    return told, error.status, False


@_told.register(EngineOverloadedError)
@_told.register(EngineUnavailableError)
def _(error: YaieError) -> tuple[Told, int, bool]:
    told, status, _ = _told.dispatch(YaieError)(error)
    return told, status, True


def error_body(error: Exception) -> dict[str, Any]:
    """The error object of an exception."""
    told, _, _ = _told(error)
    return told.body()


def error_response(error: Exception) -> Response:
    """The response to an exception."""
    told, status, passes = _told(error)
    return _written(told, status, {"retry-after": RETRY_AFTER_SECONDS} if passes else {})


def http_error(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    """The response to a failure that has no exception of ours."""
    match status:
        case 401 | 403 | 404:
            type = {1: "authentication", 3: "permission", 4: "not_found"}[status % 10] + "_error"
        case _ if status >= 500:
            type = "server_error"
        case _:
            type = "invalid_request_error"
    return _written(Told(message, type), status, headers or {})


def _written(told: Told, status: int, headers: dict[str, str]) -> Response:
    body = json.dumps(told.body(), indent=1)
    return Response(body, status, headers, media_type="application/json")


def validation_error(errors: Sequence[Any]) -> InvalidRequestError:
    """The first of pydantic's complaints as one of our errors."""
    first, *_ = errors
    param = ""
    if first["type"] != "json_invalid":
        for step in first["loc"][1:]:
            match step:
                case int():
                    param = f"{param}[{step}]"
                case _:
                    param = f"{param}.{step}" if param else step
    words = [param] * bool(param) + [complaint(first)]
    return InvalidRequestError(": ".join(words), param=param or None)


def complaint(error: Any) -> str:
    """What one of pydantic's complaints means, in words for someone who has never seen pydantic."""
    match error["type"]:
        case "json_invalid":
            return f"The body is not valid JSON: {error['ctx']['error']}."
        case "extra_forbidden":
            return "This parameter is unknown or not supported; leave it out."
        case "missing" if len(error["loc"]) > 1:
            return "This parameter is required."
        case "missing" | "model_attributes_type" | "dict_type" if len(error["loc"]) == 1:
            return "The body must be a JSON object, sent with Content-Type: application/json."
        case "literal_error":
            return f"Only {error['ctx']['expected']} is supported."
        case "none_required":
            return "This parameter is not supported; leave it out."
        case "too_long" if error["ctx"]["max_length"] == 0:
            return "This parameter is not supported; leave it out."
        case _:
            return str(error["msg"])


def install_error_handlers(app: FastAPI) -> None:
    """Make `app` answer every failure in this form, those of the framework included."""
    app.add_exception_handler(YaieError, _on_yaie_error)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(ClientDisconnect, _on_disconnect)
    app.add_exception_handler(Exception, _on_unexpected)


async def _on_yaie_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, YaieError)
    # The message stays out of the log: it may quote the prompt.
    path, param = request.url.path, clean(error.param or "-")
    logger.info("%s refused: %d %s, parameter %s", path, error.status, error.code, param)
    return error_response(error)


async def _on_validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return await _on_yaie_error(request, validation_error(error.errors()))


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    where = f"{request.method} {request.url.path}"
    message = {
        404: f"There is nothing at {where}.",
        405: f"{where}: this path does not take the method {request.method}.",
    }.get(error.status_code, str(error.detail))
    return http_error(error.status_code, message, dict(error.headers or {}))


async def _on_disconnect(_: Request, error: Exception) -> Response:
    return Response(status_code=CLIENT_CLOSED_REQUEST)


async def _on_unexpected(_: Request, error: Exception) -> Response:
    return error_response(error)
