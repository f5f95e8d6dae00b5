"""Every failure as OpenAI's error object: {"error": {"message", "type", "param", "code"}}.

What a client reads was written for it: no traceback, path or address gets into a message, and input
that is quoted back is capped.
"""

import logging
import re
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from yaie.core.errors import (
    EngineOverloadedError,
    EngineUnavailableError,
    InvalidRequestError,
    YaieError,
)

logger = logging.getLogger(__name__)

MAX_MESSAGE_CHARS = 500
RETRY_AFTER_SECONDS = "1"
CLIENT_CLOSED_REQUEST = 499  # nginx's number for it; nobody is left to read it

_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error"}


def error_object(
    message: str, *, type: str, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """The body of an error response, and the data of an error event in a stream."""
    param = None if param is None else _clean(param)
    return {"error": {"message": _clean(message), "type": type, "param": param, "code": code}}


def error_body(error: Exception) -> dict[str, Any]:
    """What a client is told about an exception; nothing if it was not meant for one."""
    if not isinstance(error, YaieError):
        return error_object("Internal server error.", type="server_error", code="internal_error")
    return error_object(error.message, type=error.type, param=error.param, code=error.code)


def install_error_handlers(app: FastAPI) -> None:
    """Make `app` answer every failure in this form, those of the framework included."""
    app.add_exception_handler(YaieError, _on_yaie_error)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(ClientDisconnect, _on_disconnect)
    app.add_exception_handler(Exception, _on_unexpected)


def http_error(status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """A response for a failure that has no exception of ours."""
    type = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return JSONResponse(error_object(message, type=type), status, headers)


def validation_error(errors: Sequence[Any]) -> InvalidRequestError:
    """The first of pydantic's complaints, as one of our errors that names the parameter."""
    first = errors[0]
    location = [part for part in first["loc"][1:] if first["type"] != "json_invalid"]
    param = re.sub(r"\.(\d+)", r"[\1]", ".".join(str(part) for part in location)) or None
    message = _message(first)
    return InvalidRequestError(f"{param}: {message}" if param else message, param=param)


def _message(error: Any) -> str:
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


def _clean(text: str) -> str:
    """Encodable and short, whatever a client sent."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    return text if len(text) <= MAX_MESSAGE_CHARS else text[: MAX_MESSAGE_CHARS - 1] + "…"


async def _on_yaie_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, YaieError)
    # The message stays out of the log: it may quote the prompt.
    path, param = request.url.path, _clean(error.param or "-")
    logger.info("%s refused: %d %s, parameter %s", path, error.status, error.code, param)
    may_retry = isinstance(error, EngineOverloadedError | EngineUnavailableError)
    headers = {"Retry-After": RETRY_AFTER_SECONDS} if may_retry else None
    return JSONResponse(error_body(error), error.status, headers)


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
    return JSONResponse(error_body(error), 500)
