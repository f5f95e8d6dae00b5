"""`POST /v1/embeddings`: each text as a vector of length 1, the model's hidden states pooled.

A causal model was not trained for this; models made for embeddings do better.
"""

from base64 import b64encode
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from yaie.core.errors import InvalidRequestError
from yaie.core.fields import (
    FAST,
    MAX_PROMPTS,
    Flag,
    Integer,
    PromptToken,
    Text,
    bounded,
    or_say,
    ranged,
)
from yaie.core.output import RequestOutput
from yaie.core.params import SamplingParams
from yaie.core.ranges import RANGES
from yaie.server.discriminated import Body
from yaie.server.openapi import examples
from yaie.server.openapi.document import INFERENCE, described
from yaie.server.service import Service
from yaie.system.json_slices import written

if TYPE_CHECKING:
    from yaie.core.contracts import ApiServer

Tokens = Annotated[list[PromptToken], Field(min_length=1), FAST]
Input = Annotated[
    Text
    | Tokens
    | Annotated[list[Text], Field(min_length=1, max_length=MAX_PROMPTS), FAST]
    | Annotated[list[Tokens], Field(min_length=1, max_length=MAX_PROMPTS), FAST],
    or_say(
        f"It must be a string, token ids, or a list of at most {MAX_PROMPTS} strings or of lists of "
        f"token ids. An id is {RANGES['token'].told}."
    ),
]


class EmbeddingRequest(Body):
    """Texts, and how their vectors are to be made and written."""

    input: Input
    model: Text | None = Field(None, description="The served model; may be left out.")
    encoding_format: Literal["float", "base64"] | None = Field(
        None, description="base64: little-endian float32."
    )
    dimensions: Integer | None = bounded(
        "dimensions", "Keep the first so many numbers, scaled to length 1 again."
    )
    pooling: Literal["last", "mean"] | None = Field(
        None, description="Extension. The last token's state (the default), or the mean of all."
    )
    truncate_prompt_tokens: Integer | None = ranged("truncate_prompt_tokens")
    add_special_tokens: Flag | None = Field(None, description="False: no BOS and the like.")
    priority: Integer | None = bounded("priority", "Extension. Smaller goes first.")
    user: str | None = Field(None, description="A label; has no effect.")

    def inputs(self) -> list[str | list[int]]:
        """One or many."""
        is_one = isinstance(self.input, str) or isinstance(self.input[0], int)
        return [self.input] if is_one else self.input  # type: ignore[list-item,return-value]


class Embedding(BaseModel):
    """The vector of one input."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingUsage(BaseModel):
    """Tokens of all inputs."""

    prompt_tokens: int
    total_tokens: int


class Embeddings(BaseModel):
    """The vectors, in the order of the inputs."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage


def embeddings_router(service: Service, api: "ApiServer") -> APIRouter:
    """The router with this one endpoint."""
    router = APIRouter()

    @router.post(
        "/v1/embeddings",
        **described(
            "createEmbedding",
            "inference",
            "Each text as a vector",
            answer=Embeddings,
            errors=INFERENCE,
            samples=examples.EMBEDDINGS,
        ),
    )
    async def create_embedding(body: EmbeddingRequest, request: Request) -> Response:
        """Each text as a vector."""
        return await api.until_disconnect(request.receive, _answer(service, api, body))

    return router


async def _answer(service: Service, api: "ApiServer", body: EmbeddingRequest) -> Response:
    api.check_model(service, body.model)
    params = SamplingParams(
        temperature=0,
        max_tokens=1,
        ignore_eos=True,
        pooling=body.pooling or "last",
        truncate_prompt_tokens=body.truncate_prompt_tokens,
        add_special_tokens=body.add_special_tokens is not False,
    )
    try:
        stream = await service.submit_all(body.inputs(), params, priority=body.priority or 0)
    except InvalidRequestError as error:
        if error.param in ("prompt", "max_tokens"):
            error.message, error.param = error.message.replace("prompt", "input"), "input"
        raise
    outputs: dict[str, RequestOutput] = {}
    async with aclosing(stream):
        async for output in stream:
            if (failure := output.exception) is not None:
                raise failure
            outputs[output.request_id] = output
    in_order = [outputs[request.request_id] for request in stream.requests]

    def result() -> dict[str, Any]:
        total = sum(output.num_prompt_tokens for output in in_order)
        return {
            "object": "list",
            "data": [
                {"object": "embedding", "index": index, "embedding": _vector(output, body)}
                for index, output in enumerate(in_order)
            ],
            "model": service.model_name,
            "usage": {"prompt_tokens": total, "total_tokens": total},
        }

    return Response(b"".join(await written(result)), media_type="application/json")


def _vector(output: RequestOutput, body: EmbeddingRequest) -> list[float] | str:
    """As the body wants it. Raises InvalidRequestError if it wants more numbers than there are."""
    pooled = np.array(output.embedding, dtype=np.float64)
    if body.dimensions is not None and body.dimensions > len(pooled):
        raise InvalidRequestError(f"dimensions: at most {len(pooled)} here.", param="dimensions")
    pooled = pooled[: body.dimensions]
    unit = (pooled / max(float(np.linalg.norm(pooled)), 1e-12)).astype("<f4")
    if body.encoding_format == "base64":
        return b64encode(unit.tobytes()).decode()
    return unit.tolist()
