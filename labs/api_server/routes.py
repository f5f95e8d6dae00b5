# Lab 8, your part (edition 2): task 8.6. The rest is given.
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
    # TODO 8.6: your code here (the reference: 18 lines).
    raise NotImplementedError(
        "api_server task 8.6: not implemented yet; see chapter The HTTP API"
    )


# ANCHOR_END: router


# ANCHOR: models
def model_card(service: ModelService, created: int) -> Json:
    """OpenAI's object for the served model: "id" (its name), "object": "model", "created", "owned_by":
    "yaie", and "max_model_len", an extension that clients of other engines know as well.
    """
    # TODO 8.6: your code here (the reference: 7 lines).
    raise NotImplementedError(
        "api_server task 8.6: not implemented yet; see chapter The HTTP API"
    )


def check_model(service: ModelService, name: str | None) -> None:
    """Raises ModelNotFoundError unless `name` is the served model, or None (not given).

    Its message quotes both names: a client learns what it could have asked for. Its parameter is
    "model".
    """
    # TODO 8.6: your code here (the reference: 5 lines).
    raise NotImplementedError(
        "api_server task 8.6: not implemented yet; see chapter The HTTP API"
    )


# ANCHOR_END: models


# ANCHOR: answers
async def answer_chat(service: ModelService, body: ChatRequest) -> Response:
    """Answer a conversation with a ChatReply.

    In this order, because the first thing wrong is the one to report: the model is the served one, the
    sampling parameters are right (`body.sampling_params` with the service's defaults), the messages
    (each `for_template`), `body.prompt_tools` and `body.prompt_options` make a prompt
    (`service.encode_chat`). Then `answer`.
    """
    # TODO 8.6: your code here (the reference: 5 lines).
    raise NotImplementedError(
        "api_server task 8.6: not implemented yet; see chapter The HTTP API"
    )


async def answer_text(service: ModelService, body: CompletionRequest) -> Response:
    """Continue `body.prompts()` with a TextReply, after the same checks of model and parameters."""
    # TODO 8.6: your code here (the reference: 3 lines).
    raise NotImplementedError(
        "api_server task 8.6: not implemented yet; see chapter The HTTP API"
    )


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
    # TODO 8.6: your code here (the reference: 8 lines).
    raise NotImplementedError(
        "api_server task 8.6: not implemented yet; see chapter The HTTP API"
    )


# ANCHOR_END: answers
