# Lab 8, your part (edition 2): task 8.1. The rest is given.
"""Every failure as OpenAI's error object: {"error": {"message", "type", "param", "code"}}.

The endpoints, `sending.py` and `yaie.server` call it. What a client reads was written for it: no
traceback, path or address gets into a message, and input that is quoted back is capped.
"""

import logging
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
CLIENT_CLOSED_REQUEST = 499  # nginx's number for it; no client reads it

# Of failures that have no exception of ours. Other statuses: see `http_error`.
TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error"}


# ANCHOR: error_object
def error_object(
    message: str, *, type: str, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """The body of an error response, and the data of an error event in a stream.

    Always {"error": {...}} with all four keys, None where there is nothing to say. `message` and
    `param` may quote a client, so both are passed through `clean`.
    """
    # TODO 8.1: your code here (the reference: 2 lines).
    raise NotImplementedError(
        "api_server task 8.1: not implemented yet; see chapter The HTTP API"
    )


def clean(text: str) -> str:
    """A text that can be sent, whatever a client wrote.

    Half of a surrogate pair cannot be encoded in UTF-8 and becomes "?". A text longer than
    MAX_MESSAGE_CHARS is cut to that length, "…" as its last character.
    """
    # TODO 8.1: your code here (the reference: 2 lines).
    raise NotImplementedError(
        "api_server task 8.1: not implemented yet; see chapter The HTTP API"
    )


# ANCHOR_END: error_object


# ANCHOR: error_response
def error_body(error: Exception) -> dict[str, Any]:
    """The error object of an exception.

    A YaieError was written for the client: its message, type, param and code. Anything else is an
    accident whose words may hold a path or a prompt: the client is told "Internal server error.",
    type "server_error", code "internal_error", and nothing more.
    """
    # TODO 8.1: your code here (the reference: 3 lines).
    raise NotImplementedError(
        "api_server task 8.1: not implemented yet; see chapter The HTTP API"
    )


def error_response(error: Exception) -> JSONResponse:
    """The response to an exception: `error_body` with a YaieError's own status, or 500.

    An EngineOverloadedError or EngineUnavailableError passes by itself, so its response carries the
    header Retry-After: RETRY_AFTER_SECONDS. No other does: a dead engine stays dead.
    """
    # TODO 8.1: your code here (the reference: 4 lines).
    raise NotImplementedError(
        "api_server task 8.1: not implemented yet; see chapter The HTTP API"
    )


def http_error(status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """The response to a failure that has no exception of ours, with these headers.

    Its type is TYPES[status] where that exists, else "invalid_request_error" for a status below 500
    and "server_error" from there on; param and code are None.
    """
    # TODO 8.1: your code here (the reference: 2 lines).
    raise NotImplementedError(
        "api_server task 8.1: not implemented yet; see chapter The HTTP API"
    )


# ANCHOR_END: error_response


# ANCHOR: validation_error
def validation_error(errors: Sequence[Any]) -> InvalidRequestError:
    """The first of pydantic's complaints as one of our errors, which names the parameter.

    errors: as `RequestValidationError.errors()` gives them, at least one. The "loc" of each is a
    tuple: "body", then the way to the value, in names and list indices. `param` is that way as a
    client would write it: ("body", "messages", 0, "content") becomes messages[0].content. It is None
    where nothing follows "body", and for the type "json_invalid", where an offset into the text
    follows. The message is what `complaint` says, after "PARAM: " where there is a parameter.
    """
    # TODO 8.1: your code here (the reference: 6 lines).
    raise NotImplementedError(
        "api_server task 8.1: not implemented yet; see chapter The HTTP API"
    )


# ANCHOR_END: validation_error


# ANCHOR: complaint
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


# ANCHOR_END: complaint


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
