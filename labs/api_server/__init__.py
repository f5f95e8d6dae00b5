"""Lab 8: the HTTP API that OpenAI clients speak.

`errors.py` turns every failure into OpenAI's error object; `replies.py` shapes answers; `sending.py`
puts them on the wire; `leaving.py` notices clients that go away; `routes.py` wires the endpoints;
`schemas.py`, `completion.py`, `shared.py`, `conversation.py`, `calls.py` and `demands.py`, given, say
what a request may hold; `large.py`, given, writes answers of any size.
"""

from .errors import (
    MAX_MESSAGE_CHARS,
    RETRY_AFTER_SECONDS,
    clean,
    error_body,
    error_object,
    error_response,
    http_error,
    install_error_handlers,
    validation_error,
)
from .leaving import Answering, until_disconnect
from .replies import ChatReply, Reply, TextReply
from .routes import (
    answer,
    answer_chat,
    answer_text,
    check_model,
    make_router,
    model_card,
)
from .schemas import ChatRequest, CompletionRequest
from .sending import DONE, EventStream, event, send_events, streamed_answer, whole_answer

__all__ = [
    "DONE",
    "MAX_MESSAGE_CHARS",
    "RETRY_AFTER_SECONDS",
    "Answering",
    "ChatReply",
    "ChatRequest",
    "CompletionRequest",
    "EventStream",
    "Reply",
    "TextReply",
    "answer",
    "answer_chat",
    "answer_text",
    "check_model",
    "clean",
    "error_body",
    "error_object",
    "error_response",
    "event",
    "http_error",
    "install_error_handlers",
    "make_router",
    "model_card",
    "send_events",
    "streamed_answer",
    "until_disconnect",
    "validation_error",
    "whole_answer",
]
