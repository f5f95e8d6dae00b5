"""Another design: a table of routes and one object that knows the service, instead of closures."""

import contextlib
import time
from collections.abc import Callable, Sequence

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from yaie.core.contracts import ModelService
from yaie.core.errors import ModelNotFoundError
from yaie.core.params import SamplingParams

from .leaving import until_disconnect
from .replies import ChatReply, Json, Reply, TextReply
from .schemas import ChatRequest, CompletionRequest
from .sending import streamed_answer, whole_answer


class Endpoints:
    """The four endpoints, as methods."""

    def __init__(self, service: ModelService) -> None:
        self._service = service
        self._started = int(time.time())

    async def models(self) -> Json:
        return {"object": "list", "data": [model_card(self._service, self._started)]}

    async def model(self, model: str) -> Json:
        check_model(self._service, model)
        return model_card(self._service, self._started)

    async def chat(self, body: ChatRequest, request: Request) -> Response:
        return await until_disconnect(request.receive, answer_chat(self._service, body))

    async def text(self, body: CompletionRequest, request: Request) -> Response:
        return await until_disconnect(request.receive, answer_text(self._service, body))


def make_router(service: ModelService) -> APIRouter:
    """A FastAPI router with the endpoints below `/v1`."""
    endpoints, router = Endpoints(service), APIRouter(prefix="/v1")
    for method, path, endpoint in (
        ("GET", "/models", endpoints.models),
        ("GET", "/models/{model:path}", endpoints.model),
        ("POST", "/chat/completions", endpoints.chat),
        ("POST", "/completions", endpoints.text),
    ):
        router.add_api_route(path, endpoint, methods=[method], response_model=None)
    return router


def model_card(service: ModelService, created: int) -> Json:
    """OpenAI's object for the served model."""
    card: Json = {"object": "model", "owned_by": "yaie", "created": created}
    card["id"] = service.model_name
    card["max_model_len"] = service.max_model_len
    return card


def check_model(service: ModelService, name: str | None) -> None:
    """Raises ModelNotFoundError unless `name` is the served model, or None."""
    served = service.model_name
    if name is None or name == served:
        return
    raise ModelNotFoundError(f"There is {served!r} here, not {name!r}.", param="model")


async def answer_chat(service: ModelService, body: ChatRequest) -> Response:
    """Answer a conversation."""
    params = _checked(service, body)
    messages = list(map(type(body.messages[0]).for_template, body.messages))
    prompt = await service.encode_chat(
        messages, options=body.prompt_options, tools=body.prompt_tools
    )
    return await answer(service, body, [prompt], params, ChatReply)


async def answer_text(service: ModelService, body: CompletionRequest) -> Response:
    """Continue prompts."""
    params = _checked(service, body)
    return await answer(service, body, body.prompts(), params, TextReply)


def _checked(service: ModelService, body: ChatRequest | CompletionRequest) -> SamplingParams:
    check_model(service, body.model)
    return body.sampling_params(service.sampling_defaults)


async def answer(
    service: ModelService,
    body: ChatRequest | CompletionRequest,
    prompts: Sequence[str | list[int]],
    params: SamplingParams,
    make_reply: Callable[..., Reply],
) -> Response:
    """Submit the prompts and send what comes."""
    priority = 0 if body.priority is None else body.priority
    stream = await service.submit_all(prompts, params, priority=priority)
    async with contextlib.AsyncExitStack() as unless_made:
        unless_made.push_async_callback(stream.aclose)
        plain = make_reply(service.model_name, stream.requests, include_usage=body.include_usage)
        reply = service.extend(plain, body)
        unless_made.pop_all()
    if body.stream:
        return await streamed_answer(stream, reply)
    return await whole_answer(stream, reply)
