"""The table of all endpoints, and the document that is made of it.

FastAPI makes a first version out of the routes. Which statuses there are, what a stream looks like and
what a part answers in plain dicts it cannot know, and the part may be a learner's; so all that is said
of an endpoint is put here, in one table.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter

from yaie.server import embeddings, health, info, tokens
from yaie.server.dialects.messages_body import MessagesRequest, TokenCountRequest
from yaie.server.dialects.responses_body import ResponsesRequest
from yaie.server.dialects.routes import TokenCount
from yaie.server.openapi import completions, examples, messages, responses

if TYPE_CHECKING:
    from yaie.core.contracts import ApiServer

Json = dict[str, Any]

ABOUT = """A server for one language model that OpenAI clients understand.

Every failure is answered with the same error object. A path that does not exist is a 404, a method that
a path does not take is a 405 which names those it takes. A parameter that is accepted is honoured,
unless it is said to have no effect; one that is not supported is refused by name with a 400. A body may
have at most {limit} bytes. Every answer carries `X-Request-Id`, the client's own or a new one, which
stands in the server's log too.
"""
REF = "#/components/schemas/"
STATUSES = {
    400: ("BadRequest", "The request is wrong; `param` names the parameter."),
    401: ("Unauthorized", "No API key was given, or one that is not known here."),
    403: ("Forbidden", "Another host's name, or a foreign web page; the message names the flag."),
    404: ("NotFound", "This model is not served here."),
    408: ("TooSlow", "The body has not come in time."),
    413: ("TooLarge", "The body is too large."),
    500: ("Failed", "The request failed inside the server."),
    503: ("Unavailable", "Loading, draining, overloaded or dead. Try again if told so."),
    504: ("TimedOut", "The request took longer than this server allows."),
}
OVERLOADED = {529: "The queue is full. Try again later."}
"""What Anthropic's API answers instead of a 503."""
TAGS = {
    "inference": "Text from the model.",
    "models": "What is served.",
    "tokens": "The model's tokenizer.",
    "operation": "For operators, and for what balances load.",
}
CHUNKS = (
    "Chunks as server-sent events; `data: [DONE]` is the last. A failure after the first token is an "
    "error object in an event of its own."
)
EVENTS = (
    "Typed events, from `response.created` to `response.completed` or `response.incomplete`. A failure "
    "after the first token is `error`, then `response.failed`."
)
MESSAGE_EVENTS = (
    "Events, from `message_start` to `message_stop`. A failure after the first token is an `error`, "
    "which is the last."
)


@dataclass(frozen=True)
class Stream:
    """Server-sent events. data: the type of an event's data, which is JSON."""

    data: Any
    told: str
    has_done: bool = True


CHAT_STREAM = Stream(completions.ChatCompletionChunk | completions.Error, CHUNKS)
TEXT_STREAM = Stream(completions.Completion | completions.Error, CHUNKS)
RESPONSE_STREAM = Stream(responses.AnyEvent, EVENTS, has_done=False)
MESSAGE_STREAM = Stream(messages.AnyMessageEvent, MESSAGE_EVENTS, has_done=False)


@dataclass(frozen=True)
class Endpoint:
    """What the document says of one method at one path.

    body, answer: types that pydantic knows. errors: statuses besides those that all endpoints have.
    stream: what is sent instead of `answer` if the body has `stream: true`. unwell: what a 503 holds
    instead of an error. failure: what every failure holds instead of the usual error. is_open: it asks
    for no key, and is answered however busy the server is.
    """

    name: str
    tag: str
    summary: str
    answer: Any
    errors: tuple[int, ...] = ()
    body: Any = None
    samples: examples.Examples | None = None
    stream: Stream | None = None
    unwell: Any = None
    failure: Any = None
    is_open: bool = False
    media_types: tuple[str, ...] = ("application/json",)


INFERENCE = (400, 404, 408, 413, 500, 504)
TOKENS = (400, 404, 408, 413, 500)
MESSAGES = (*INFERENCE, *OVERLOADED)
ALIASES = ("/get_server_info", "/get_model_info", "/flush_cache")
"""What else SGLang's clients call a path; an operation's name may stand once."""


def endpoints(api: "ApiServer") -> dict[tuple[str, str], Endpoint]:
    """All that we know, by path and method. api: says what the two older endpoints take."""
    server_info = Endpoint("getServerInfo", "operation", "How the engine is set up",
                           info.ServerInfo)  # fmt: skip
    model_info = Endpoint("getModelInfo", "models", "What the model is", info.ModelInfo)
    reset = Endpoint("resetPrefixCache", "operation", "Forget the prefixes that no request uses",
                     info.ResetCache, (500,))  # fmt: skip
    return {
        ("/health", "get"): Endpoint(
            "getHealth", "operation", "Whether the engine runs, and what it runs", health.Health,
            is_open=True, unwell=health.Health,
        ),
        ("/ready", "get"): Endpoint(
            "getReadiness", "operation", "Whether a request sent now would be admitted",
            health.Readiness, is_open=True, unwell=health.Readiness,
        ),
        ("/metrics", "get"): Endpoint(
            "getMetrics", "operation", "Figures for Prometheus, under vLLM's names", str,
            is_open=True, media_types=("text/plain", "application/openmetrics-text"),
        ),
        ("/v1/chat/completions", "post"): Endpoint(
            "createChatCompletion", "inference", "Answer a conversation", completions.ChatCompletion,
            INFERENCE, api.ChatRequest, examples.CHAT, CHAT_STREAM,
        ),
        ("/v1/completions", "post"): Endpoint(
            "createCompletion", "inference", "Continue one or several prompts", completions.Completion,
            INFERENCE, api.CompletionRequest, examples.COMPLETION, TEXT_STREAM,
        ),
        ("/v1/responses", "post"): Endpoint(
            "createResponse", "inference", "Answer a conversation, in OpenAI's newer form",
            responses.Response, INFERENCE, ResponsesRequest, examples.RESPONSES, RESPONSE_STREAM,
        ),
        ("/v1/messages", "post"): Endpoint(
            "createMessage", "inference", "Answer a conversation, in Anthropic's form",
            messages.AnthropicMessage, MESSAGES, MessagesRequest, examples.MESSAGES, MESSAGE_STREAM,
            failure=messages.AnthropicError,
        ),
        ("/v1/messages/count_tokens", "post"): Endpoint(
            "countMessageTokens", "tokens", "How many tokens a conversation has, in Anthropic's form",
            TokenCount, (*TOKENS, *OVERLOADED), TokenCountRequest, examples.COUNT_TOKENS,
            failure=messages.AnthropicError,
        ),
        ("/v1/embeddings", "post"): Endpoint(
            "createEmbedding", "inference", "Each text as a vector", embeddings.Embeddings, INFERENCE,
            embeddings.EmbeddingRequest, examples.EMBEDDINGS,
        ),
        ("/v1/models", "get"): Endpoint(
            "listModels", "models", "The one model that is served", completions.ModelList
        ),
        ("/v1/models/{model}", "get"): Endpoint(
            "retrieveModel", "models", "The served model by name", completions.ModelCard, (404,)
        ),
        ("/model_info", "get"): model_info,
        ("/get_model_info", "get"): model_info,
        ("/tokenize", "post"): Endpoint(
            "tokenize", "tokens", "The tokens of a text or of a conversation", tokens.Tokens,
            TOKENS, tokens.TokenizeRequest, examples.TOKENIZE,
        ),
        ("/detokenize", "post"): Endpoint(
            "detokenize", "tokens", "The text of tokens", tokens.Detokenized, TOKENS,
            tokens.DetokenizeRequest, examples.DETOKENIZE,
        ),
        ("/tokenizer_info", "get"): Endpoint(
            "getTokenizerInfo", "tokens", "What a client needs to tokenize by itself",
            tokens.TokenizerInfo,
        ),
        ("/version", "get"): Endpoint(
            "getVersion", "operation", "The version of this server", info.Version
        ),
        ("/get_load", "get"): Endpoint(
            "getLoad", "operation", "How busy the engine is, for routers", list[info.Load]
        ),
        ("/server_info", "get"): server_info,
        ("/get_server_info", "get"): server_info,
        ("/reset_prefix_cache", "post"): reset,
        ("/flush_cache", "post"): reset,
    }  # fmt: skip


def install_document(
    app: FastAPI, api: "ApiServer", *, max_body_bytes: int, with_keys: bool = False
) -> None:
    """Make `/openapi.json` say what is true. with_keys: whether clients must bring an API key."""
    made: Json = {}

    def openapi() -> Json:
        if not made:
            made.update(document(app, api, max_body_bytes, with_keys))
        return made

    app.openapi = openapi  # type: ignore[method-assign]


def document(app: FastAPI, api: "ApiServer", max_body_bytes: int, with_keys: bool) -> Json:
    """The OpenAPI document of these routes."""
    about = ABOUT.format(limit=f"{max_body_bytes:,}")
    said = get_openapi(title=app.title, version=app.version, description=about, routes=app.routes)
    table = endpoints(api)
    schemas, definitions = _schemas(table)
    failures = {name: _failure(status) for status, (name, _) in STATUSES.items()}
    said["tags"] = [{"name": name, "description": text} for name, text in TAGS.items()]
    said["components"] = {"schemas": definitions, "responses": failures}
    if with_keys:
        key = {"type": "http", "scheme": "bearer", "description": "An API key."}
        header = {"type": "apiKey", "in": "header", "name": "x-api-key"}
        said["components"]["securitySchemes"] = {"key": key, "x-api-key": header}
    for path, operations in said["paths"].items():
        for method, operation in operations.items():
            endpoint = table.get((path, method))
            if endpoint is not None:
                _describe(operation, endpoint, schemas, path, with_keys)
    return said


def _describe(
    operation: Json, endpoint: Endpoint, schemas: dict[int, Json], path: str, with_keys: bool
) -> None:
    """Replace what FastAPI could guess of an operation."""
    operation["operationId"] = endpoint.name + ("Alias" if path in ALIASES else "")
    operation["summary"] = endpoint.summary
    operation["tags"] = [endpoint.tag]
    operation.pop("description", None)
    content: Json = {
        kind: {"schema": schemas[id(endpoint.answer)]} for kind in endpoint.media_types
    }
    if endpoint.stream:
        content["text/event-stream"] = _events(endpoint.stream, schemas)
    operation["responses"] = {"200": {"description": endpoint.summary, "content": content}}
    if endpoint.body is not None:
        bodies = {name: {"value": body} for name, body in (endpoint.samples or {}).items()}
        given = {"schema": schemas[id(endpoint.body)], "examples": bodies}
        operation["requestBody"] = {"required": True, "content": {"application/json": given}}
    failures = {*endpoint.errors} if endpoint.is_open else {*endpoint.errors, 403, 503}
    if with_keys and not endpoint.is_open:
        failures.add(401)
        operation["security"] = [{"key": []}, {"x-api-key": []}]
    for status in sorted(failures):
        if endpoint.failure:
            told: Json = {"application/json": {"schema": schemas[id(endpoint.failure)]}}
            meaning = OVERLOADED.get(status) or STATUSES[status][1]
            operation["responses"][str(status)] = {"description": meaning, "content": told}
        else:
            reference = f"#/components/responses/{STATUSES[status][0]}"
            operation["responses"][str(status)] = {"$ref": reference}
    if endpoint.unwell:
        content = {"application/json": {"schema": schemas[id(endpoint.unwell)]}}
        operation["responses"]["503"] = {"description": STATUSES[503][1], "content": content}


def _events(stream: Stream, schemas: dict[int, Json]) -> Json:
    """`itemSchema` is OpenAPI 3.2's, for one event; FastAPI writes it into older documents as well."""
    schema = {"contentMediaType": "application/json", "contentSchema": schemas[id(stream.data)]}
    data: Json = {"type": "string", **schema}
    if stream.has_done:
        data = {"anyOf": [{"const": "[DONE]"}, data]}
    event = {"type": "object", "properties": {"data": data}, "required": ["data"]}
    return {"itemSchema": {"description": stream.told, **event}}


def _failure(status: int) -> Json:
    response: Json = {
        "description": STATUSES[status][1],
        "content": {"application/json": {"schema": {"$ref": REF + "Error"}}},
    }
    if status == 503:
        seconds = {"description": "Seconds, if it passes.", "schema": {"type": "string"}}
        response["headers"] = {"Retry-After": seconds}
    return response


def _schemas(table: dict[tuple[str, str], Endpoint]) -> tuple[dict[int, Json], Json]:
    """The schema of each type by its identity, and the definitions that they refer to."""
    types = [endpoint.answer for endpoint in table.values()]
    types += [endpoint.body for endpoint in table.values() if endpoint.body is not None]
    types += [endpoint.stream.data for endpoint in table.values() if endpoint.stream]
    types += [completions.Error, messages.AnthropicError]
    by_id = {id(type_): type_ for type_ in types}
    made, rest = TypeAdapter.json_schemas(
        [(key, "validation", TypeAdapter(type_)) for key, type_ in by_id.items()],
        ref_template=REF + "{model}",
    )
    definitions = rest.get("$defs", {})
    for name in ("messages", "tools"):  # checked as those of a chat completion
        chat = definitions["ChatRequest"]["properties"][name]
        definitions["TokenizeChat"]["properties"][name] = chat
    return {key: schema for (key, _), schema in made.items()}, definitions
