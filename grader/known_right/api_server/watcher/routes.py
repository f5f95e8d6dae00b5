"""Another design: a table of routes and one object that knows the backend, instead of closures."""

import time
from collections.abc import Callable, Sequence

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from yaie.core.contracts import ServingBackend
from yaie.core.errors import ModelNotFoundError
from yaie.core.params import SamplingParams

from .leaving import until_disconnect
from .replies import ChatReply, Json, Reply, TextReply
from .schemas import ChatRequest, CompletionRequest
from .sending import streamed_answer, whole_answer


class Endpoints:
    """The four endpoints, as methods."""

    def __init__(self, backend: ServingBackend) -> None:
        self._backend = backend
        self._started = int(time.time())

    async def models(self) -> Json:
        return {"object": "list", "data": [model_card(self._backend, self._started)]}

    async def model(self, model: str) -> Json:
        check_model(self._backend, model)
        return model_card(self._backend, self._started)

    async def chat(self, body: ChatRequest, request: Request) -> Response:
        return await until_disconnect(request.receive, answer_chat(self._backend, body))

    async def text(self, body: CompletionRequest, request: Request) -> Response:
        return await until_disconnect(request.receive, answer_text(self._backend, body))


def make_router(backend: ServingBackend) -> APIRouter:
    """A FastAPI router with the endpoints below `/v1`."""
    endpoints, router = Endpoints(backend), APIRouter(prefix="/v1")
    for method, path, endpoint in (
        ("GET", "/models", endpoints.models),
        ("GET", "/models/{model:path}", endpoints.model),
        ("POST", "/chat/completions", endpoints.chat),
        ("POST", "/completions", endpoints.text),
    ):
        router.add_api_route(path, endpoint, methods=[method], response_model=None)
    return router


def model_card(backend: ServingBackend, created: int) -> Json:
    """OpenAI's object for the served model."""
    card: Json = {"object": "model", "owned_by": "yaie", "created": created}
    card["id"] = backend.model_name
    card["max_model_len"] = backend.max_model_len
    return card


def check_model(backend: ServingBackend, name: str | None) -> None:
    """Raises ModelNotFoundError unless `name` is the served model, or None."""
    served = backend.model_name
    if name is None or name == served:
        return
    raise ModelNotFoundError(f"There is {served!r} here, not {name!r}.", param="model")


async def answer_chat(backend: ServingBackend, body: ChatRequest) -> Response:
    """Answer a conversation."""
    params = _checked(backend, body)
    messages = list(map(type(body.messages[0]).for_template, body.messages))
    prompt = await backend.encode_chat(messages, tools=body.prompt_tools)
    return await answer(backend, body, [prompt], params, ChatReply)


async def answer_text(backend: ServingBackend, body: CompletionRequest) -> Response:
    """Continue prompts."""
    params = _checked(backend, body)
    return await answer(backend, body, body.prompts(), params, TextReply)


def _checked(backend: ServingBackend, body: ChatRequest | CompletionRequest) -> SamplingParams:
    check_model(backend, body.model)
    return body.sampling_params(backend.sampling_defaults)


async def answer(
    backend: ServingBackend,
    body: ChatRequest | CompletionRequest,
    prompts: Sequence[str | list[int]],
    params: SamplingParams,
    make_reply: Callable[..., Reply],
) -> Response:
    """Submit the prompts and send what comes."""
    priority = 0 if body.priority is None else body.priority
    stream = await backend.submit_all(prompts, params, priority=priority)
    plain = make_reply(backend.model_name, stream.requests, include_usage=body.include_usage)
    reply = backend.extend(plain, body)
    if body.stream:
        return await streamed_answer(stream, reply)
    return await whole_answer(stream, reply)
