"""The OpenAPI document. FastAPI makes it, from what each endpoint takes and is said to answer.

`described` is what a route's decorator is given. What no decorator can say is added once the document is
made: what streams hold, and that clients must bring a key.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter

from yaie.server.openapi.completions import Error
from yaie.server.openapi.examples import Examples
from yaie.server.openapi.opened import REF, add_beside, open_bodies

Json = dict[str, Any]

ABOUT = """A server for one language model that OpenAI clients understand.

Every failure is answered with the same error object. A path that does not exist is a 404, a method that
a path does not take is a 405 which names those it takes. A parameter that is accepted is honoured,
unless it is said to have no effect; one that is not supported is refused by name with a 400. {unknown} A
body may have at most {limit} bytes. Every answer carries `X-Request-Id`, the client's own or a new one,
which stands in the server's log too.
"""
UNKNOWN = (
    "A field that is unknown is ignored, and named in the header `x-yaie-ignored` of the answer, unless "
    "its name is close to one that is known: then it is refused. Null means absent. Where a maximum of "
    "tokens is more than the context leaves, it is lowered to that, as `x-yaie-max-tokens` tells."
)
UNKNOWN_IF_STRICT = "So is one that is unknown."
STATUSES = {
    400: "The request is wrong; `param` names the parameter.",
    401: "No API key was given, or one that is not known here.",
    403: "Another host's name, or a foreign web page; the message names the flag.",
    404: "This model is not served here.",
    408: "The body has not come in time.",
    413: "The body is too large.",
    500: "The request failed inside the server.",
    503: "Loading, draining, overloaded or dead. Try again if told so.",
    504: "The request took longer than this server allows.",
    529: "The queue is full. Try again later.",
}
"""529 is what Anthropic's API answers instead of a 503."""
TAGS = {
    "inference": "Text from the model.",
    "models": "What is served.",
    "tokens": "The model's tokenizer.",
    "operation": "For operators, and for what balances load.",
}
INFERENCE = (400, 404, 408, 413, 500, 504)
TOKENS = (400, 404, 408, 413, 500)


@dataclass(frozen=True)
class Stream:
    """Server-sent events. data: the models of an event's data, which is JSON, one for each kind."""

    data: tuple[type[BaseModel], ...]
    told: str
    has_done: bool = True

    def content(self) -> Json:
        """`itemSchema` is OpenAPI 3.2's, for one event; FastAPI too writes it into older documents."""
        schema = {"anyOf": [_reference(model) for model in self.data]}
        data: Json = {
            "type": "string",
            "contentMediaType": "application/json",
            "contentSchema": schema,
        }
        if self.has_done:
            data = {"anyOf": [{"const": "[DONE]"}, data]}
        event = {"type": "object", "properties": {"data": data}, "required": ["data"]}
        return {"text/event-stream": {"itemSchema": {"description": self.told, **event}}}


def described(
    name: str,
    tag: str,
    summary: str,
    *,
    answer: Any = None,
    errors: tuple[int, ...] = (),
    samples: Examples | None = None,
    stream: Stream | None = None,
    failure: type[BaseModel] = Error,
    is_open: bool = False,
) -> dict[str, Any]:
    """What the document says of an endpoint, as a route's decorator takes it.

    answer: a type that pydantic knows, where the endpoint's own type does not tell. errors: statuses
    besides those that all endpoints have. samples: bodies that work. stream: what is sent instead if the
    body has `stream: true`. failure: what every failure holds. is_open: it asks for no key, and is
    answered however busy the server is.
    """
    told: dict[int | str, Json] = {
        status: _failure(status, failure)
        for status in sorted({*errors} if is_open else {*errors, 403, 503})
    }
    told[200] = {"description": summary, "content": stream.content() if stream else {}}
    if answer is not None:
        told[200]["model"] = answer
    about: dict[str, Any] = {"operation_id": name, "tags": [tag], "summary": summary}
    if samples is not None:
        examples = {title: {"value": body} for title, body in samples.items()}
        content = {"application/json": {"examples": examples}}
        about["openapi_extra"] = {"requestBody": {"content": content}}
    return {**about, "responses": told}


def _reference(model: type[BaseModel]) -> Json:
    return {"$ref": REF + model.__name__}


def _failure(status: int, failure: type[BaseModel]) -> Json:
    response: Json = {
        "description": STATUSES[status],
        "content": {"application/json": {"schema": _reference(failure)}},
    }
    if status == 503:
        seconds = {"description": "Seconds, if it passes.", "schema": {"type": "string"}}
        response["headers"] = {"Retry-After": seconds}
    return response


def install_document(
    app: FastAPI,
    routers: Sequence[APIRouter],
    streams: Sequence[Stream],
    *,
    open_paths: frozenset[str],
    with_keys: bool = False,
    is_strict: bool = False,
) -> None:
    """Make `/openapi.json` say the rest. routers: of the endpoints in it. streams: all that they may
    send, whose models FastAPI does not see. with_keys: whether clients must bring an API key, to all
    paths but the open ones. is_strict: unknown fields are refused."""
    make: Callable[[], Json] = app.openapi

    def openapi() -> Json:
        if app.openapi_schema is None:
            said = make()
            events = [model for stream in streams for model in stream.data]
            told = _definitions(events)
            told |= _definitions(taken for router in routers for _, taken in bodies(router))
            said["components"]["schemas"] |= told
            _complete(said, open_paths, with_keys)
            add_beside(said)
            if not is_strict:
                open_bodies(said)
        return app.openapi_schema or {}

    app.openapi = openapi  # type: ignore[method-assign]


def bodies(router: APIRouter) -> Iterator[tuple[str, Any]]:
    """The path of each endpoint that takes a body, and its type."""
    for route in router.routes:
        if isinstance(route, APIRoute) and route.body_field is not None:
            yield route.path, route.body_field.field_info.annotation


def _definitions(types: Iterable[Any]) -> Json:
    """The models of events, and those of failures, which are events too. Those of bodies as well:
    FastAPI has them, but with limits as floats, which cannot hold the largest integers."""
    by_id = {id(type_): type_ for type_ in types}
    _, told = TypeAdapter.json_schemas(
        [(key, "validation", TypeAdapter(type_)) for key, type_ in by_id.items()],
        ref_template=REF + "{model}",
    )
    definitions: Json = told["$defs"]
    return definitions


def _complete(said: Json, open_paths: frozenset[str], with_keys: bool) -> None:
    schemas = said["components"]["schemas"]
    for name in ("messages", "tools"):  # checked as those of a chat completion
        schemas["TokenizeChat"]["properties"][name] = schemas["ChatRequest"]["properties"][name]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    if with_keys:
        key = {"type": "http", "scheme": "bearer", "description": "An API key."}
        header = {"type": "apiKey", "in": "header", "name": "x-api-key"}
        said["components"]["securitySchemes"] = {"key": key, "x-api-key": header}
    for path, operations in said["paths"].items():
        for operation in operations.values():
            operation["responses"].pop("422", None)  # a wrong body is a 400 here
            if with_keys and path not in open_paths:
                told = operation["responses"]
                told["401"] = {**told["403"], "description": STATUSES[401]}
                operation["security"] = [{"key": []}, {"x-api-key": []}]
