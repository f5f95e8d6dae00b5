"""Another design: a stack of what must be closed, which is emptied where the answer takes over.

The reference closes the stream in an `except`; here it stands on an AsyncExitStack until a reply is
made. The endpoints are closures over a table of kinds.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from yaie.core.contracts import ModelService
from yaie.core.errors import ModelNotFoundError
from yaie.core.params import SamplingParams

from .leaving import until_disconnect
from .replies import ChatReply, Json, Reply, TextReply
from .schemas import ChatRequest, CompletionRequest
from .sending import streamed_answer, whole_answer


def make_router(service: ModelService) -> APIRouter:
    """A router with the four endpoints."""
    started = time.time()
    router = APIRouter()

    @router.get("/v1/models")
    async def models() -> Response:
        """The one model that is served."""
        return JSONResponse({"data": [model_card(service, int(started))], "object": "list"})

    @router.get("/v1/models/{id:path}")
    async def model(name: Annotated[str, Path(alias="id")]) -> Response:
        """The served model by name."""
        check_model(service, name)
        return JSONResponse(model_card(service, int(started)))

    @router.post("/v1/chat/completions", response_model=None)
    async def chat(request: Request, body: Annotated[ChatRequest, Body()]) -> Response:
        """Answer a conversation."""
        return await until_disconnect(request._receive, answer_chat(service, body))

    @router.post("/v1/completions", response_model=None)
    async def text(request: Request, body: Annotated[CompletionRequest, Body()]) -> Response:
        """Continue prompts."""
        return await until_disconnect(request._receive, answer_text(service, body))

    return router


def model_card(service: ModelService, created: int) -> Json:
    """OpenAI's object for the served model."""
    fields = ("id", "object", "created", "owned_by", "max_model_len")
    values = (service.model_name, "model", created, "yaie", service.max_model_len)
    return dict(zip(fields, values, strict=True))


def check_model(service: ModelService, name: str | None) -> None:
    """Raises ModelNotFoundError for another model."""
    if name is not None and name != service.model_name:
        error = ModelNotFoundError(f"{name!r} is not served; {service.model_name!r} is.")
        error.param = "model"
        raise error


async def answer_chat(service: ModelService, body: ChatRequest) -> Response:
    """Answer a conversation."""

    async def prompts() -> list[Any]:
        asked = [message.for_template() for message in body.messages]
        return [await service.encode_chat(asked, body.prompt_tools, body.prompt_options)]

    return await _checked(service, body, prompts, ChatReply)


async def answer_text(service: ModelService, body: CompletionRequest) -> Response:
    """Continue prompts."""

    async def prompts() -> list[Any]:
        return list(body.prompts())

    return await _checked(service, body, prompts, TextReply)


async def _checked(
    service: ModelService, body: Any, prompts: Callable[[], Any], kind: Callable[..., Reply]
) -> Response:
    check_model(service, body.model)
    params = body.sampling_params(service.sampling_defaults)
    return await answer(service, body, await prompts(), params, kind)


async def answer(
    service: ModelService,
    body: ChatRequest | CompletionRequest,
    prompts: Sequence[str | list[int]],
    params: SamplingParams,
    make_reply: Callable[..., Reply],
) -> Response:
    """Submit the prompts and send what comes."""
    async with AsyncExitStack() as open_still:
        priority = body.priority if body.priority is not None else 0
        stream = await service.submit_all(prompts, params, priority=priority)
        open_still.push_async_callback(stream.aclose)
        reply = service.extend(
            make_reply(service.model_name, stream.requests, include_usage=body.include_usage), body
        )
        open_still.pop_all()
    how = {True: streamed_answer, False: whole_answer}[bool(body.stream)]
    return await how(stream, reply)
