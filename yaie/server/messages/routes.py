"""The endpoints `POST /v1/messages` and `/v1/messages/count_tokens`.

All that an answer needs beyond its shape comes from the part in use, as with `/v1/responses`.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from yaie.core.contracts import OutputStream
from yaie.core.errors import InvalidRequestError
from yaie.core.params import SamplingParams
from yaie.server.messages.chat import in_our_words
from yaie.server.messages.reply import MessageReply
from yaie.server.messages.schemas import MessagesRequest, TokenCountRequest
from yaie.server.responses.routes import whole_or_streamed
from yaie.server.service import Service

if TYPE_CHECKING:
    from yaie.core.contracts import ApiServer


class TokenCount(BaseModel):
    """How long a prompt is."""

    input_tokens: int = Field(ge=0, description="Of system, messages and tools, as a prompt.")


def messages_router(service: Service, api: "ApiServer") -> APIRouter:
    """The router with both endpoints. api: the part whose chat completions they go through."""
    router = APIRouter()

    @router.post("/v1/messages")
    async def create_message(body: MessagesRequest, request: Request) -> Response:
        """Answer a conversation, in Anthropic's form."""
        return await api.until_disconnect(request.receive, _answer(service, api, body))

    @router.post("/v1/messages/count_tokens")
    async def count_tokens(body: TokenCountRequest, request: Request) -> TokenCount:
        """How many tokens a conversation has, as the model's prompt."""
        api.check_model(service, body.model)
        try:
            counting = _prompt(service, api, body, is_counted=True)
            _, prompt = await api.until_disconnect(request.receive, counting)
        except InvalidRequestError as error:
            raise in_our_words(error) from None
        return TokenCount(input_tokens=len(prompt))

    return router


async def _answer(service: Service, api: "ApiServer", body: MessagesRequest) -> Response:
    try:
        stream, reply = await _submit(service, api, body)
    except InvalidRequestError as error:
        raise in_our_words(error) from None
    return await whole_or_streamed(api, stream, reply, is_streamed=bool(body.stream))


async def _submit(
    service: Service, api: "ApiServer", body: MessagesRequest
) -> tuple[OutputStream, MessageReply]:
    api.check_model(service, body.model)
    chat, prompt = await _prompt(service, api, body)
    params = chat.sampling_params(service.sampling_defaults)
    params = _as_far_as_it_fits(service, params, len(prompt))
    stream = await service.submit_all([prompt], params, priority=body.priority or 0)
    try:
        reply = service.extend(api.ChatReply(service.model_name, stream.requests), chat)
        return stream, MessageReply(reply, body, service.model_name)
    except Exception:
        await stream.aclose()  # the engine works for it already
        raise


async def _prompt(
    service: Service, api: "ApiServer", body: TokenCountRequest, *, is_counted: bool = False
) -> tuple[Any, list[int]]:
    """The chat completion's body, and its prompt. is_counted: all of it, though it is longer than the
    context. Raises InvalidRequestError."""
    try:
        chat = body.as_chat(api)
    except RequestValidationError as error:
        raise api.validation_error(error.errors()) from None
    messages = [message.for_template() for message in chat.messages]
    return chat, await service.encode_chat(
        messages, chat.prompt_tools, chat.prompt_options, is_counted=is_counted
    )


def _as_far_as_it_fits(service: Service, params: SamplingParams, num_prompt: int) -> SamplingParams:
    """`max_tokens` is required, so clients send what they allow at most: the context may end before.
    Then the answer says so, with `model_context_window_exceeded`."""
    info = service.engine.info
    room = min(info.max_model_len, info.pool_tokens + 1) - num_prompt
    fits = params.max_tokens is None or params.max_tokens <= room
    return params if fits else replace(params, max_tokens=None)
