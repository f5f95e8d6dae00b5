"""Another design: the endpoints are methods of an object, and other tasks are found by their modules.

The reference imports `whole_answer`, `ChatReply` and the like by name; here they are looked up in their
modules at each call, and a table says which reply goes with which body.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from yaie.core.contracts import ModelService
from yaie.core.errors import ModelNotFoundError
from yaie.core.params import SamplingParams

from . import leaving, replies, schemas, sending


class Endpoints:
    """What the router's paths lead to."""

    __slots__ = ("service", "since")

    def __init__(self, service: ModelService) -> None:
        self.service, self.since = service, int(time.time())

    def models(self) -> dict[str, Any]:
        """The one model that is served."""
        return {"object": "list", "data": [model_card(self.service, self.since)]}

    def model(self, name: str) -> dict[str, Any]:
        """The served model by name."""
        check_model(self.service, name)
        return model_card(self.service, self.since)

    async def chat(self, request: Request, body: schemas.ChatRequest) -> Response:
        """Answer a conversation."""
        work = answer_chat(self.service, body)
        return await leaving.until_disconnect(request.receive, work)

    async def text(self, request: Request, body: schemas.CompletionRequest) -> Response:
        """Continue prompts."""
        work = answer_text(self.service, body)
        return await leaving.until_disconnect(request.receive, work)


def make_router(service: ModelService) -> APIRouter:
    """A router with the four endpoints."""
    here = Endpoints(service)
    router = APIRouter()
    for method, path, endpoint in (
        ("GET", "/v1/models", here.models),
        ("GET", "/v1/models/{name:path}", here.model),
        ("POST", "/v1/chat/completions", here.chat),
        ("POST", "/v1/completions", here.text),
    ):
        router.add_api_route(path, endpoint, methods=[method])
    return router


def model_card(service: ModelService, created: int) -> dict[str, Any]:
    """OpenAI's object for the served model."""
    return {
        "max_model_len": service.max_model_len,
        "owned_by": "yaie",
        "created": created,
        "object": "model",
        "id": service.model_name,
    }


def check_model(service: ModelService, name: str | None) -> None:
    """Raises ModelNotFoundError for another model."""
    if (served := service.model_name) != (served if name is None else name):
        words = "No model is called {!r} here. Ask for {!r}."
        raise ModelNotFoundError(words.format(name, served), param="model")


async def answer_chat(service: ModelService, body: schemas.ChatRequest) -> Response:
    """Answer a conversation."""
    params = _checked(service, body)
    asked = list(map(type(body.messages[0]).for_template, body.messages)) if body.messages else []
    ids = await service.encode_chat(asked, tools=body.prompt_tools, options=body.prompt_options)
    return await answer(service, body, (ids,), params, replies.ChatReply)


async def answer_text(service: ModelService, body: schemas.CompletionRequest) -> Response:
    """Continue prompts."""
    params = _checked(service, body)
    return await answer(service, body, body.prompts(), params, replies.TextReply)


def _checked(service: ModelService, body: Any) -> SamplingParams:
    check_model(service, body.model)
    params: SamplingParams = body.sampling_params(service.sampling_defaults)
    return params


async def answer(
    service: ModelService,
    body: schemas.ChatRequest | schemas.CompletionRequest,
    prompts: Sequence[str | list[int]],
    params: SamplingParams,
    make_reply: Callable[..., replies.Reply],
) -> Response:
    """Submit the prompts and send what comes."""
    stream = await service.submit_all(prompts, params, priority=body.priority or 0)
    try:
        plain = make_reply(
            model=service.model_name, requests=stream.requests, include_usage=body.include_usage
        )
        reply = service.extend(plain, body)
    except BaseException:
        await stream.aclose()
        raise
    if body.stream:
        return await sending.streamed_answer(stream, reply)
    return await sending.whole_answer(stream, reply)
