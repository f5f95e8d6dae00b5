"""Another design: one description of a failure, from which bodies and responses are made.

The reference decides status, headers and body in three functions; here `describe` does so once.
"""

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
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
TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error"}
HALF_PAIRS = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Failure:
    """All that a response to a failure says."""

    status: int
    message: str
    type: str
    param: str | None = None
    code: str | None = None
    retry: bool = False

    def body(self) -> dict[str, Any]:
        return error_object(self.message, type=self.type, param=self.param, code=self.code)


def describe(error: Exception) -> Failure:
    """What a client may know of an exception."""
    if not isinstance(error, YaieError):
        return Failure(500, "Internal server error.", "server_error", code="internal_error")
    retry = isinstance(error, EngineOverloadedError | EngineUnavailableError)
    return Failure(error.status, error.message, error.type, error.param, error.code, retry)


def error_object(
    message: str, *, type: str, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """The body of an error response."""
    named = param if param is None else clean(param)
    return {"error": dict(message=clean(message), type=type, param=named, code=code)}  # noqa: C408


def clean(text: str) -> str:
    """A text that can be sent, whatever a client wrote."""
    if len(text) > MAX_MESSAGE_CHARS:
        text = text[: MAX_MESSAGE_CHARS - 1] + "…"
    return HALF_PAIRS.sub("?", text)


def error_body(error: Exception) -> dict[str, Any]:
    """The error object of an exception."""
    return describe(error).body()


def error_response(error: Exception) -> JSONResponse:
    """The response to an exception."""
    failure = describe(error)
    response = JSONResponse(failure.body(), failure.status)
    if failure.retry:
        response.headers["Retry-After"] = RETRY_AFTER_SECONDS
    return response


def http_error(status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """The response to a failure that has no exception of ours."""
    other = "server_error" if status >= 500 else "invalid_request_error"
    failure = Failure(status, message, TYPES.get(status, other))
    return JSONResponse(failure.body(), status_code=status, headers=headers)


def validation_error(errors: Sequence[Any]) -> InvalidRequestError:
    """The first of pydantic's complaints as one of our errors."""
    error, *_ = errors
    param = ""
    if error["type"] != "json_invalid":
        _, *way = error["loc"]
        for step in way:
            param += f"[{step}]" if isinstance(step, int) else f".{step}"
        param = param[1:] if param.startswith(".") else param
    if not param:
        return InvalidRequestError(complaint(error))
    return InvalidRequestError(f"{param}: {complaint(error)}", param=param)


def complaint(error: Any) -> str:
    """What one of pydantic's complaints means."""
    if error["type"] == "json_invalid":
        return f"The body is not valid JSON: {error['ctx']['error']}."
    if (
        error["type"] in ("missing", "model_attributes_type", "dict_type")
        and len(error["loc"]) == 1
    ):
        return "The body must be a JSON object, sent with Content-Type: application/json."
    return str(error["msg"])


def install_error_handlers(app: FastAPI) -> None:
    """Make `app` answer every failure in this form, those of the framework included."""

    @app.exception_handler(ClientDisconnect)
    async def left(_: Request, error: Exception) -> Response:
        return Response(status_code=499)

    @app.exception_handler(RequestValidationError)
    async def unreadable(_: Request, error: RequestValidationError) -> Response:
        return error_response(validation_error(error.errors()))

    @app.exception_handler(HTTPException)
    async def of_the_framework(_: Request, error: HTTPException) -> Response:
        return http_error(error.status_code, str(error.detail), dict(error.headers or {}))

    @app.exception_handler(YaieError)
    @app.exception_handler(Exception)
    async def any_other(_: Request, error: Exception) -> Response:
        return error_response(error)
