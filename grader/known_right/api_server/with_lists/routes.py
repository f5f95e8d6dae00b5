"""The model's card is made once, and a copy of it is given."""

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


def make_router(service: ModelService) -> APIRouter:
    started = int(time.time())
    router = APIRouter(prefix="/v1")
    card: Json = {}

    def copy_of_card() -> Json:
        if not card:
            card.update(model_card(service, started))
        return dict(card)

    async def listed() -> Json:
        return {"object": "list", "data": [copy_of_card()]}

    async def found(model: str) -> Json:
        check_model(service, model)
        return copy_of_card()

    async def chat(body: ChatRequest, request: Request) -> Response:
        return await until_disconnect(request.receive, answer_chat(service, body))

    async def text(body: CompletionRequest, request: Request) -> Response:
        return await until_disconnect(request.receive, answer_text(service, body))

    router.add_api_route("/models", listed, methods=["GET"])
    router.add_api_route("/models/{model:path}", found, methods=["GET"])
    router.add_api_route("/chat/completions", chat, methods=["POST"])
    router.add_api_route("/completions", text, methods=["POST"])
    return router


def model_card(service: ModelService, created: int) -> Json:
    card: Json = {"id": service.model_name, "object": "model", "owned_by": "yaie"}
    return card | {"created": created, "max_model_len": service.max_model_len}


def check_model(service: ModelService, name: str | None) -> None:
    served = service.model_name
    if name is None or name == served:
        return
    raise ModelNotFoundError(f"There is no model {name!r}, only {served!r}.", param="model")


async def answer_chat(service: ModelService, body: ChatRequest) -> Response:
    check_model(service, body.model)
    params = body.sampling_params(service.sampling_defaults)
    messages = [*(message.for_template() for message in body.messages)]
    prompt = await service.encode_chat(messages, body.prompt_tools, body.prompt_options)
    return await answer(service, body, [prompt], params, ChatReply)


async def answer_text(service: ModelService, body: CompletionRequest) -> Response:
    check_model(service, body.model)
    params = body.sampling_params(service.sampling_defaults)
    return await answer(service, body, body.prompts(), params, TextReply)


async def answer(
    service: ModelService,
    body: ChatRequest | CompletionRequest,
    prompts: Sequence[str | list[int]],
    params: SamplingParams,
    make_reply: Callable[..., Reply],
) -> Response:
    priority = 0 if body.priority is None else body.priority
    stream = await service.submit_all(prompts, params, priority=priority)
    extended = None
    try:
        made = make_reply(service.model_name, stream.requests, include_usage=body.include_usage)
        extended = service.extend(made, body)
    finally:
        if extended is None:
            await stream.aclose()
    send = streamed_answer if body.stream else whole_answer
    return await send(stream, extended)
