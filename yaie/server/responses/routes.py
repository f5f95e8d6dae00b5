"""The endpoint `POST /v1/responses`, and how its events are sent.

All that an answer needs beyond its shape comes from the part in use: the same checks, the same watch
over clients that leave, the same error object.
"""

import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from fastapi import APIRouter
from fastapi.exceptions import RequestValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from yaie.core.contracts import OutputStream, Reply
from yaie.core.errors import InvalidRequestError, YaieError
from yaie.server.responses.chat import in_our_words
from yaie.server.responses.items import Json
from yaie.server.responses.reply import ResponseReply
from yaie.server.responses.schemas import ResponsesRequest
from yaie.server.service import Service

if TYPE_CHECKING:
    from yaie.core.contracts import ApiServer


def responses_router(service: Service, api: "ApiServer") -> APIRouter:
    """The router with this one endpoint. api: the part whose chat completions it goes through."""
    router = APIRouter()

    @router.post("/v1/responses")
    async def create_response(body: ResponsesRequest, request: Request) -> Response:
        """Answer a conversation, in OpenAI's newer form. Nothing is kept of it."""
        return await api.until_disconnect(request.receive, _answer(service, api, body))

    return router


async def _answer(service: Service, api: "ApiServer", body: ResponsesRequest) -> Response:
    try:
        stream, reply = await _submit(service, api, body)
    except InvalidRequestError as error:
        raise in_our_words(error) from None
    except RequestValidationError as error:
        raise in_our_words(api.validation_error(error.errors())) from None
    return await whole_or_streamed(api, stream, reply, is_streamed=bool(body.stream))


async def _submit(
    service: Service, api: "ApiServer", body: ResponsesRequest
) -> tuple[OutputStream, ResponseReply]:
    api.check_model(service, body.model)
    chat = body.as_chat(api)
    params = chat.sampling_params(service.sampling_defaults)
    messages = [message.for_template() for message in chat.messages]
    prompt = await service.encode_chat(messages, chat.prompt_tools, chat.prompt_options)
    stream = await service.submit_all([prompt], params, priority=body.priority or 0)
    try:
        reply = service.extend(api.ChatReply(service.model_name, stream.requests), chat)
        return stream, ResponseReply(reply, body, service.model_name)
    except Exception:
        await stream.aclose()  # the engine works for it already
        raise


class EventReply(Reply, Protocol):
    """A reply whose chunks are typed events."""

    def failure(self, error: Json) -> Iterable[Json]:
        """The last events of a stream that failed. error: the error object as elsewhere."""
        ...

    def encoded(self, event: Json) -> str:
        """An event as compact JSON."""
        ...


async def whole_or_streamed(
    api: "ApiServer", stream: OutputStream, reply: EventReply, *, is_streamed: bool
) -> Response:
    """The answer in one piece, or its events. Those of the first output are made before the status is
    sent, which a failure then has."""
    if not is_streamed:
        response: Response = await api.whole_answer(stream, reply)
        return response
    try:
        first = list(reply.chunks(await anext(stream)))
    except BaseException:
        await stream.aclose()
        raise
    return ResponseStream(api, stream, reply, first)


class ResponseStream(Response):
    """Sends typed events as they come. Aborts the request when the client leaves."""

    media_type = "text/event-stream"

    def __init__(
        self, api: "ApiServer", stream: OutputStream, reply: EventReply, first: list[Json]
    ) -> None:
        """`first`: the events of the output that was taken already."""
        self.status_code = 200
        self.background = None
        self.init_headers({"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        self._api, self._stream, self._reply, self._first = api, stream, reply, first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all, until it is sent or the client has left."""
        with contextlib.suppress(ClientDisconnect, YaieError):
            async with self._api.Answering(self._stream, self._reply):
                await self._api.until_disconnect(receive, self._send_all(send))

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            await _send(send, self._reply, self._first)
            async for output in self._stream:
                await _send(send, self._reply, self._reply.chunks(output))
        except Exception as error:  # too late for a status
            last = self._reply.failure(self._api.error_body(error)["error"])
            await _send(send, self._reply, last)
            raise
        finally:
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send(send: Send, reply: EventReply, events: Iterable[Json]) -> None:
    body = b"".join(
        f"event: {event['type']}\ndata: {reply.encoded(event)}\n\n".encode() for event in events
    )
    if body:
        await send({"type": "http.response.body", "body": body, "more_body": True})
