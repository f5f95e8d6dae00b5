"""The endpoints. Each says what it does; how is in the modules it calls."""

import time
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from yaie import __version__
from yaie.core.params import SamplingParams
from yaie.engine.async_engine import EngineState, Prompt
from yaie.engine.openai_format import ChatReply, Reply, TextReply
from yaie.server.schemas import ChatRequest, CompletionRequest
from yaie.server.service import Service, ServiceOf
from yaie.server.streaming import streamed_answer, until_disconnect, whole_answer

router = APIRouter()
_STARTED = int(time.time())


@router.get("/health")
async def health(service: ServiceOf) -> Response:
    """200 when ready; 503 while loading or draining, and when dead. Says whose parts run."""
    state = service.engine.state
    body: dict[str, Any] = {"status": state.value, "version": __version__}
    if state in (EngineState.READY, EngineState.DRAINING):
        body["model"] = service.model_name
        body["parts"] = [
            {"lab": part.lab, "owner": part.owner, "module": part.module}
            for part in service.engine.engine.parts
        ]
    return JSONResponse(body, 200 if state is EngineState.READY else 503)


@router.get("/v1/models")
async def list_models(service: ServiceOf) -> dict[str, Any]:
    """The one model that is served."""
    return {"object": "list", "data": [_model_card(service)]}


@router.get("/v1/models/{model:path}")
async def get_model(model: str, service: ServiceOf) -> dict[str, Any]:
    """The served model by name; 404 for any other."""
    service.check_model(model)
    return _model_card(service)


@router.post("/v1/chat/completions")
async def chat_completions(body: ChatRequest, request: Request, service: ServiceOf) -> Response:
    """Answer a conversation."""

    async def answer() -> Response:
        service.check_model(body.model)
        params = body.sampling_params(service.sampling_defaults)
        messages = [message.for_template() for message in body.messages]
        prompt = await service.engine.encode_chat(messages)
        return await _answer(service, body, [prompt], params, ChatReply)

    return await until_disconnect(request.receive, answer())


@router.post("/v1/completions")
async def completions(body: CompletionRequest, request: Request, service: ServiceOf) -> Response:
    """Continue one or several prompts."""

    async def answer() -> Response:
        service.check_model(body.model)
        params = body.sampling_params(service.sampling_defaults)
        return await _answer(service, body, body.prompts(), params, TextReply)

    return await until_disconnect(request.receive, answer())


async def _answer(
    service: Service,
    body: ChatRequest | CompletionRequest,
    prompts: list[Prompt],
    params: SamplingParams,
    reply_type: type[Reply],
) -> Response:
    stream = await service.engine.submit_all(prompts, params, priority=body.priority or 0)
    reply = reply_type(service.model_name, stream.requests, include_usage=body.include_usage)
    return await (streamed_answer if body.stream else whole_answer)(stream, reply)


def _model_card(service: Service) -> dict[str, Any]:
    return {
        "id": service.model_name,
        "object": "model",
        "created": _STARTED,
        "owned_by": "yaie",
        "max_model_len": service.engine.engine.max_model_len,
    }
