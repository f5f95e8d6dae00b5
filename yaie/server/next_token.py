"""`POST /web/next_token`: what the model would say next, before and after the sampler's filters.

The page shows it as bars. The engine computes one token and tells the log-probability of the whole
vocabulary; temperature, top-k, top-p and min-p are then applied here, with NumPy, by the rules of lab 1.
"""

from collections.abc import Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from fastapi import APIRouter
from numpy.typing import NDArray
from pydantic import BaseModel, Field, ValidationError
from starlette.requests import Request

from yaie.core.errors import InvalidRequestError
from yaie.core.fields import FAST, Integer, Number, PromptToken, ranged
from yaie.core.params import SamplingParams
from yaie.server.discriminated import Body, located
from yaie.server.service import Service

if TYPE_CHECKING:
    from yaie.core.contracts import ApiServer

SHOWN = 20
"""Tokens in an answer, at most: the most likely ones."""
Floats = NDArray[np.float64]


class NextTokenRequest(Body):
    """A prefix, as token ids or as a conversation, and how the next token would be drawn."""

    prompt: Annotated[list[PromptToken], Field(min_length=1), FAST] | None = None
    messages: Annotated[list[dict[str, Any]], Field(min_length=1), FAST] | None = None
    temperature: Number | None = ranged("temperature")
    top_k: Integer | None = ranged("top_k")
    top_p: Number | None = ranged("top_p")
    min_p: Number | None = ranged("min_p")


class Candidate(BaseModel):
    """A token, its probability at temperature 1 without a filter, and with what was asked for."""

    id: int
    text: str
    before: float
    after: float


class NextToken(BaseModel):
    """The most likely tokens first. kept: how many of the `vocab` tokens may be drawn."""

    prompt: list[int]
    tokens: list[Candidate]
    kept: int
    vocab: int


def next_token_router(service: Service, api: "ApiServer") -> APIRouter:
    """The router with this one endpoint. The page is who asks, so it is not in `/openapi.json`."""
    router = APIRouter(include_in_schema=False)

    @router.post("/web/next_token")
    async def next_token(body: NextTokenRequest, request: Request) -> NextToken:
        """The distribution of the token that follows a prefix."""
        return await api.until_disconnect(request.receive, _answer(service, api, body))

    return router


async def _answer(service: Service, api: "ApiServer", body: NextTokenRequest) -> NextToken:
    settings = _settings(service, body)
    prompt, logprobs = await _logprobs(service, await _prompt(service, api, body))
    before, after = np.exp(logprobs), filtered(logprobs, **settings)
    best = np.argsort(-before, kind="stable")[:SHOWN].tolist()
    shown = [
        Candidate(id=token, text=_text(service, token), before=before[token], after=after[token])
        for token in best
    ]
    return NextToken(
        prompt=prompt, tokens=shown, kept=int(np.count_nonzero(after)), vocab=len(before)
    )


async def _prompt(service: Service, api: "ApiServer", body: NextTokenRequest) -> list[int]:
    if (body.prompt is None) == (body.messages is None):
        raise InvalidRequestError(
            "Send prompt (token ids) or messages, one of them.", param="prompt"
        )
    if body.messages is None:
        return list(body.prompt or ())
    try:
        chat = api.ChatRequest.model_validate({"messages": body.messages})
    except ValidationError as error:
        raise located(error) from None
    messages = [message.for_template() for message in chat.messages]
    return await service.encode_chat(messages, None, chat.prompt_options)


def _whole_distribution(vocab_size: int) -> SamplingParams:
    """One token, with the log-probability of every token of the vocabulary.

    No client can ask for so many: that is why MAX_LOGPROBS is only checked on construction.
    """
    params = SamplingParams(
        temperature=0.0, max_tokens=1, ignore_eos=True, logprobs=0, fits_context=True
    )
    object.__setattr__(params, "logprobs", vocab_size)
    return params


async def _logprobs(service: Service, prompt: list[int]) -> tuple[list[int], Floats]:
    """The prompt as the engine took it, and the log-probability of every token behind it."""
    vocab = service.engine.info.vocab_size
    stream = await service.submit_all([prompt], _whole_distribution(vocab))
    told: Sequence[tuple[int, float]] = ()
    async with aclosing(stream):
        async for output in stream:
            if (failure := output.exception) is not None:
                raise failure
            if output.logprobs:
                told = output.logprobs[0].top
    logprobs = np.full(vocab, -np.inf)
    pairs = np.array(told)
    logprobs[pairs[:, 0].astype(np.int64)] = pairs[:, 1]
    return stream.requests[0].prompt_token_ids, logprobs


def _settings(service: Service, body: NextTokenRequest) -> dict[str, Any]:
    """Those of the body, then the model's own, then none."""
    names = ("temperature", "top_k", "top_p", "min_p")
    given = {name: getattr(body, name) for name in names if getattr(body, name) is not None}
    defaults = {name: service.sampling_defaults[name] for name in names
                if name in service.sampling_defaults}  # fmt: skip
    params = SamplingParams(**(defaults | given))  # which says what is out of range
    return {name: getattr(params, name) for name in names}


def filtered(
    logprobs: Floats, *, temperature: float, top_k: int, top_p: float, min_p: float
) -> Floats:
    """Probabilities [vocab] with which a token is drawn. Temperature 0 takes the most likely one."""
    if temperature == 0:
        drawn = np.zeros(len(logprobs))
        drawn[np.argmax(logprobs)] = 1.0
        return drawn
    logits = (logprobs - logprobs.max()) / temperature
    if 0 < top_k < len(logits):
        # Equals of the k-th stay too, as in the sampler.
        logits[logits < np.partition(logits, -top_k)[-top_k]] = -np.inf
    if top_p < 1:
        order = np.argsort(-logits, kind="stable")
        probs = _softmax(logits)[order]
        drop = np.cumsum(probs) - probs >= top_p
        drop[0] = False
        logits[order[drop]] = -np.inf
    if min_p > 0:
        logits[logits < np.log(min_p) + logits.max()] = -np.inf
    return _softmax(logits)


def _softmax(logits: Floats) -> Floats:
    exponents = np.exp(logits - logits.max())
    return exponents / exponents.sum()


def _text(service: Service, token: int) -> str:
    """What a token adds to the text; a special one as the vocabulary writes it."""
    tokenizer = service.engine.tokenizer
    own = tokenizer.token_bytes(token)
    if own is None:
        return tokenizer.token_strings([token])[0]
    return own.decode("utf-8", errors="replace")
