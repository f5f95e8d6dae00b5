"""What the document says of the endpoints of the API part, which may be a learner's.

Its answers are plain dicts; `completions.py` models them, and nothing here is in their way.
"""

from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute

from yaie.server.openapi import completions, examples
from yaie.server.openapi.document import INFERENCE, Stream, described

CHUNKS = (
    "Chunks as server-sent events; `data: [DONE]` is the last. A failure after the first token is an "
    "error object in an event of its own."
)
CHAT_STREAM = Stream((completions.ChatCompletionChunk, completions.Error), CHUNKS)
TEXT_STREAM = Stream((completions.Completion, completions.Error), CHUNKS)


def described_part(router: APIRouter) -> APIRouter:
    """The part's router, whose known routes are described."""
    about = _about()
    told = APIRouter()
    for route in router.routes:
        if isinstance(route, APIRoute) and route.path_format in about:
            told.add_api_route(
                route.path,
                route.endpoint,
                methods=route.methods,
                response_model=route.response_model,
                response_class=route.response_class,
                status_code=route.status_code,
                dependencies=route.dependencies,
                **about[route.path_format],
            )
        else:
            told.routes.append(route)
    return told


def _about() -> dict[str, dict[str, Any]]:
    """By path."""
    return {
        "/v1/chat/completions": described(
            "createChatCompletion",
            "inference",
            "Answer a conversation",
            answer=completions.ChatCompletion,
            errors=INFERENCE,
            samples=examples.CHAT,
            stream=CHAT_STREAM,
        ),
        "/v1/completions": described(
            "createCompletion",
            "inference",
            "Continue one or several prompts",
            answer=completions.Completion,
            errors=INFERENCE,
            samples=examples.COMPLETION,
            stream=TEXT_STREAM,
        ),
        "/v1/models": described(
            "listModels",
            "models",
            "The one model that is served",
            answer=completions.ModelList,
        ),
        "/v1/models/{model}": described(
            "retrieveModel",
            "models",
            "The served model by name",
            answer=completions.ModelCard,
            errors=(404,),
        ),
    }
