"""Applications around a part's router."""

import importlib.util
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any

from fastapi import FastAPI

from grader.kit.api import borrowed
from grader.kit.session import SESSION
from solutions.api_server import install_error_handlers

USER: Any = [{"role": "user", "content": "Hi"}]
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


def borrowed_for_routes(part: ModuleType) -> AbstractContextManager[None]:
    """All that the endpoints call from other tasks is the reference's."""
    names = ("until_disconnect", "ChatReply", "TextReply", "streamed_answer", "whole_answer")
    return borrowed(part.routes, *names)


def app_on(part: ModuleType, service: Any) -> FastAPI:
    """The part's endpoints; errors become responses as the reference makes them."""
    app = FastAPI(redirect_slashes=False)
    install_error_handlers(app)
    app.include_router(part.make_router(service))
    return app


def body_for(path: str, **options: Any) -> dict[str, Any]:
    """The smallest request for a path, and these options."""
    return ({"messages": USER} if path == CHAT else {"prompt": "abc"}) | options


def has_client() -> bool:
    """Whether OpenAI's client library is installed. Where it is not, what it reads is left open."""
    if importlib.util.find_spec("openai") is not None:
        return True
    SESSION.left_open = "what OpenAI's client reads: the package openai is not installed"
    return False
