"""The endpoints below `/v1`. Each says what it does; how is in the modules it calls.

`yaie.server.app` puts the router into its application, and hands it the service that does the work.
"""

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


# ANCHOR: router
def make_router(service: ModelService) -> APIRouter:
    """A router with four endpoints, answered by `service`:

    GET /v1/models               {"object": "list", "data": [the `model_card` of the served model]}
    GET /v1/models/{id}          its card, if the id passes `check_model`. An id may hold slashes.
    POST /v1/chat/completions    a ChatRequest as body: `answer_chat`
    POST /v1/completions         a CompletionRequest as body: `answer_text`

    The last two end as soon as their client leaves (`until_disconnect`). Nothing is asked of the
    service before a request comes: the model may still be loading. Exceptions are left to the
    handlers of `errors.py`.
    """
    router = APIRouter()
    started = int(time.time())  # "created" of the model's card
    # BEGIN SOLUTION 8.6

    @router.get("/v1/models")
    async def list_models() -> Json:
        """The one model that is served."""
        return {"object": "list", "data": [model_card(service, started)]}

    @router.get("/v1/models/{model:path}")
    async def get_model(model: str) -> Json:
        """The served model by name; 404 for any other."""
        check_model(service, model)
        return model_card(service, started)

    @router.post("/v1/chat/completions")
    async def chat_completions(body: ChatRequest, request: Request) -> Response:
        """Answer a conversation."""
        return await until_disconnect(request.receive, answer_chat(service, body))

    @router.post("/v1/completions")
    async def completions(body: CompletionRequest, request: Request) -> Response:
        """Continue one or several prompts."""
        return await until_disconnect(request.receive, answer_text(service, body))

    return router
    # END SOLUTION


# ANCHOR_END: router


# ANCHOR: models
def model_card(service: ModelService, created: int) -> Json:
    """OpenAI's object for the served model: "id" (its name), "object": "model", "created", "owned_by":
    "yaie", and "max_model_len", an extension that clients of other engines know as well.
    """
    # BEGIN SOLUTION 8.6
    return {
        "id": service.model_name,
        "object": "model",
        "created": created,
        "owned_by": "yaie",
        "max_model_len": service.max_model_len,
    }
    # END SOLUTION


def check_model(service: ModelService, name: str | None) -> None:
    """Raises ModelNotFoundError unless `name` is the served model, or None (not given).

    Its message quotes both names: a client learns what it could have asked for. Its parameter is
    "model".
    """
    # BEGIN SOLUTION 8.6
    if name not in (None, service.model_name):
        raise ModelNotFoundError(
            f"The model {name!r} does not exist here; this server serves {service.model_name!r}.",
            param="model",
        )
    # END SOLUTION


# ANCHOR_END: models


# ANCHOR: answers
async def answer_chat(service: ModelService, body: ChatRequest) -> Response:
    """Answer a conversation with a ChatReply.

    In this order, because the first thing wrong is the one to report: the model is the served one, the
    sampling parameters are right (`body.sampling_params` with the service's defaults), the messages
    (each `for_template`), `body.prompt_tools` and `body.prompt_options` make a prompt
    (`service.encode_chat`). Then `answer`.
    """
    # BEGIN SOLUTION 8.6
    check_model(service, body.model)
    params = body.sampling_params(service.sampling_defaults)
    messages = [message.for_template() for message in body.messages]
    prompt = await service.encode_chat(messages, body.prompt_tools, body.prompt_options)
    return await answer(service, body, [prompt], params, ChatReply)
    # END SOLUTION


async def answer_text(service: ModelService, body: CompletionRequest) -> Response:
    """Continue `body.prompts()` with a TextReply, after the same checks of model and parameters."""
    # BEGIN SOLUTION 8.6
    check_model(service, body.model)
    params = body.sampling_params(service.sampling_defaults)
    return await answer(service, body, body.prompts(), params, TextReply)
    # END SOLUTION


async def answer(
    service: ModelService,
    body: ChatRequest | CompletionRequest,
    prompts: Sequence[str | list[int]],
    params: SamplingParams,
    make_reply: Callable[..., Reply],
) -> Response:
    """Submit the prompts with the body's priority (0 if it gives none) and send what comes.

    make_reply(model name, requests of the stream, include_usage=...) shapes it, and `service.extend`
    adds what the body asks for beyond text; `streamed_answer` or `whole_answer` sends it, as
    `body.stream` says. From the submission on the engine works for this stream: if making or extending
    the reply raises, the stream is closed before the error goes on.
    """
    # BEGIN SOLUTION 8.6
    stream = await service.submit_all(prompts, params, priority=body.priority or 0)
    try:
        reply = make_reply(service.model_name, stream.requests, include_usage=body.include_usage)
        extended = service.extend(reply, body)
    except Exception:
        await stream.aclose()
        raise
    return await (streamed_answer if body.stream else whole_answer)(stream, extended)
    # END SOLUTION


# ANCHOR_END: answers
