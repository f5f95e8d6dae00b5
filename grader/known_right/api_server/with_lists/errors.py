"""Accidents are told by a body that is made once and copied; surrogates are replaced one by one."""

import logging
from collections.abc import Sequence
from copy import deepcopy
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


def error_object(
    message: str, *, type: str, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    error: dict[str, Any] = {"message": clean(message), "type": type, "code": code}
    error["param"] = clean(param) if param is not None else None
    return {"error": error}


def clean(text: str) -> str:
    few = text[:MAX_MESSAGE_CHARS]
    few = "".join("?" if 0xD800 <= ord(char) < 0xE000 else char for char in few)
    return few if len(text) == len(few) else few[:-1] + "…"


ACCIDENT = error_object("Internal server error.", type="server_error", code="internal_error")


def error_body(error: Exception) -> dict[str, Any]:
    if isinstance(error, YaieError):
        return error_object(error.message, type=error.type, param=error.param, code=error.code)
    return deepcopy(ACCIDENT)


def error_response(error: Exception) -> JSONResponse:
    response = JSONResponse(error_body(error), getattr(error, "status", 500)
                            if isinstance(error, YaieError) else 500)  # fmt: skip
    if isinstance(error, (EngineOverloadedError, EngineUnavailableError)):
        response.headers["retry-after"] = RETRY_AFTER_SECONDS
    return response


def http_error(status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    type = "invalid_request_error" if status // 100 == 4 else "server_error"
    return JSONResponse(error_object(message, type=TYPES.get(status, type)), status, headers)


def validation_error(errors: Sequence[Any]) -> InvalidRequestError:
    first = errors[0]
    message, param = complaint(first), ""
    if first["type"] not in ("json_invalid",):
        for step in first["loc"][1:]:
            joint = "." if param else ""
            param += f"[{step}]" if isinstance(step, int) else f"{joint}{step}"
    if param:
        message = f"{param}: {message}"
    return InvalidRequestError(message, param=param or None)


def complaint(error: Any) -> str:
    match error["type"]:
        case "json_invalid":
            return f"The body is not valid JSON: {error['ctx']['error']}."
        case "missing" | "model_attributes_type" | "dict_type" if len(error["loc"]) == 1:
            return "The body must be a JSON object, sent with Content-Type: application/json."
        case _:
            return str(error["msg"])


def install_error_handlers(app: FastAPI) -> None:
    app.add_exception_handler(YaieError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(ClientDisconnect, _on_disconnect)
    app.add_exception_handler(Exception, _on_error)


async def _on_error(request: Request, error: Exception) -> Response:
    return error_response(error)


async def _on_validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return error_response(validation_error(error.errors()))


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return http_error(error.status_code, str(error.detail), dict(error.headers or {}))


async def _on_disconnect(_: Request, error: Exception) -> Response:
    return Response(status_code=499)
