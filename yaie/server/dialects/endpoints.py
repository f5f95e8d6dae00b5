"""The endpoints `POST /v1/responses`, `/v1/messages` and `/v1/messages/count_tokens`.

Each makes the body of a chat completion of what it is sent, and goes on as `/v1/chat/completions` does.
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
from yaie.server.dialects import messages_answer, responses_answer
from yaie.server.dialects.event_stream import whole_or_streamed
from yaie.server.dialects.events import EventReply
from yaie.server.dialects.messages_body import MessagesRequest, TokenCountRequest
from yaie.server.dialects.messages_errors import OVERLOADED
from yaie.server.dialects.messages_reply import MessageReply
from yaie.server.dialects.responses_body import ResponsesRequest
from yaie.server.dialects.responses_reply import ResponseReply
from yaie.server.discriminated import Conversation
from yaie.server.openapi import examples
from yaie.server.openapi.document import INFERENCE, TOKENS, Stream, described
from yaie.server.service import Service

if TYPE_CHECKING:
    from yaie.core.contracts import ApiServer


EVENTS = (
    "Typed events, from `response.created` to `response.completed` or `response.incomplete`. A failure "
    "after the first token is `error`, then `response.failed`."
)
MESSAGE_EVENTS = (
    "Events, from `message_start` to `message_stop`. A failure after the first token is an `error`, "
    "which is the last."
)
RESPONSE_STREAM = Stream(responses_answer.EVENTS, EVENTS, has_done=False)
MESSAGE_STREAM = Stream(messages_answer.EVENTS, MESSAGE_EVENTS, has_done=False)


class TokenCount(BaseModel):
    """How long a prompt is."""

    input_tokens: int = Field(ge=0, description="Of system, messages and tools, as a prompt.")


def dialects_router(service: Service, api: "ApiServer") -> APIRouter:
    """The router with all three. api: the part whose chat completions they go through."""
    router = APIRouter()

    @router.post(
        "/v1/responses",
        **described(
            "createResponse",
            "inference",
            "Answer a conversation, in OpenAI's newer form",
            answer=responses_answer.Response,
            errors=INFERENCE,
            samples=examples.RESPONSES,
            stream=RESPONSE_STREAM,
        ),
    )
    async def create_response(body: ResponsesRequest, request: Request) -> Response:
        """Answer a conversation, in OpenAI's newer form. Nothing is kept of it."""
        return await api.until_disconnect(request.receive, _answer(service, api, body))

    @router.post(
        "/v1/messages",
        **described(
            "createMessage",
            "inference",
            "Answer a conversation, in Anthropic's form",
            answer=messages_answer.AnthropicMessage,
            errors=(*INFERENCE, OVERLOADED),
            samples=examples.MESSAGES,
            stream=MESSAGE_STREAM,
            failure=messages_answer.AnthropicError,
        ),
    )
    async def create_message(body: MessagesRequest, request: Request) -> Response:
        """Answer a conversation, in Anthropic's form."""
        return await api.until_disconnect(request.receive, _answer(service, api, body))

    @router.post(
        "/v1/messages/count_tokens",
        **described(
            "countMessageTokens",
            "tokens",
            "How many tokens a conversation has, in Anthropic's form",
            errors=(*TOKENS, OVERLOADED),
            samples=examples.COUNT_TOKENS,
            failure=messages_answer.AnthropicError,
        ),
    )
    async def count_tokens(body: TokenCountRequest, request: Request) -> TokenCount:
        """How many tokens a conversation has, as the model's prompt."""
        api.check_model(service, body.model)
        try:
            counting = _prompt(service, _chat(api, body), is_counted=True)
            prompt = await api.until_disconnect(request.receive, counting)
        except InvalidRequestError as error:
            raise body.in_our_words(error) from None
        return TokenCount(input_tokens=len(prompt))

    return router


async def _answer(
    service: Service, api: "ApiServer", body: ResponsesRequest | MessagesRequest
) -> Response:
    try:
        stream, reply = await _submit(service, api, body)
    except InvalidRequestError as error:
        raise body.in_our_words(error) from None
    return await whole_or_streamed(api, stream, reply, is_streamed=bool(body.stream))


async def _submit(
    service: Service, api: "ApiServer", body: ResponsesRequest | MessagesRequest
) -> tuple[OutputStream, EventReply]:
    """Raises InvalidRequestError, in the words of a chat completion."""
    api.check_model(service, body.model)
    chat = _chat(api, body)
    params = chat.sampling_params(service.sampling_defaults)
    prompt = await _prompt(service, chat)
    if isinstance(body, MessagesRequest):
        # There it is required, so clients send what they allow at most. Where the context ends before,
        # the answer says so, with `model_context_window_exceeded`.
        params = replace(params, fits_context=True)
    stream = await service.submit_all([prompt], params, priority=body.priority or 0)
    try:
        told = service.read(api.ChatReply(service.model_name, stream.requests), chat)
        if isinstance(body, MessagesRequest):
            return stream, MessageReply(told, body, service.model_name)
        return stream, ResponseReply(told, body, service.model_name)
    except Exception:
        await stream.aclose()  # the engine works for it already
        raise


def _chat(api: "ApiServer", body: Conversation) -> Any:
    """The body of the chat completion with the same answer. Raises InvalidRequestError."""
    try:
        return body.as_chat(api)
    except RequestValidationError as error:
        raise api.validation_error(error.errors()) from None


async def _prompt(service: Service, chat: Any, *, is_counted: bool = False) -> list[int]:
    """Of a chat completion. is_counted: all of it, though it is longer than the context. Raises
    InvalidRequestError."""
    messages = [message.for_template() for message in chat.messages]
    tools, options = chat.prompt_tools, chat.prompt_options
    return await service.encode_chat(messages, tools, options, is_counted=is_counted)
