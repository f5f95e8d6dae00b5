"""From a prompt and its sampling parameters to requests that may be queued, or to an error that says why
not. Nothing here costs a request that runs."""

import time

from yaie.core.config import EngineConfig
from yaie.core.errors import InvalidRequestError
from yaie.core.params import SamplingParams
from yaie.core.request import Request
from yaie.core.salted import salted
from yaie.engine.input.beyond_text import (
    OWN_PREFIX,
    check_biases,
    check_name_and_place,
    check_named_tokens,
)
from yaie.engine.input.grammars.compiler import Grammars
from yaie.engine.input.limits import resolve_max_tokens, truncated
from yaie.engine.input.narrowing import matcher
from yaie.engine.input.salts import check_salts
from yaie.models.loader import LoadedModel
from yaie.parts import Parts

Prompt = str | list[int]


class InputProcessor:
    """Makes the requests of one engine.

    max_model_len: longest sequence. text_tokens: the longest text that the KV pool can serve.
    """

    def __init__(
        self,
        config: EngineConfig,
        model: LoadedModel,
        max_model_len: int,
        text_tokens: int,
        parts: Parts,
    ) -> None:
        self._config = config
        self._tokenizer = model.tokenizer
        self._vocab_size = model.adapter.vocab_size
        self._eos_token_ids = model.eos_token_ids
        self._max_model_len = max_model_len
        self._text_tokens = text_tokens
        self._grammars = Grammars(model.tokenizer, self._vocab_size, model.eos_token_ids, parts)
        self._parts = parts
        self._num_arrived = 0
        # A fork goes on behind its sibling's prompt, of which a state keeps no trace by then.
        self._forks = not model.adapter.state_layers

    def prepare(self) -> None:
        """Do now what the first request with a constraint would wait for. See `Grammars.prepare`."""
        self._grammars.prepare()

    def check(self, params: SamplingParams) -> None:
        """Raise InvalidRequestError if no prompt could be sampled from like this.

        Compiles the constraint, which may take a while; `requests` then finds it compiled. May be
        called on another thread.
        """
        if params.logit_bias:
            check_biases(params, self._vocab_size)
        if params.logprob_token_ids or params.min_tokens:
            check_named_tokens(params, self._vocab_size, self._eos_token_ids)
        if params.constraint is not None:
            self._grammars.check(params.constraint)
        if params.cache_salt is not None and self._config.prefix_caching:
            check_salts(self._parts)

    def requests(
        self,
        prompt: Prompt,
        params: SamplingParams,
        request_id: str | None = None,
        priority: int = 0,
    ) -> list[Request]:
        """The `params.n` requests of a prompt.

        Raises InvalidRequestError, ContextLengthError or KVPoolTooSmallError.
        """
        if not isinstance(prompt, str | list | tuple):
            raise InvalidRequestError(
                f"prompt must be text or a list of token ids, got {prompt!r}", param="prompt"
            )
        if request_id is not None or type(priority) is not int or priority != 0:
            check_name_and_place(request_id, priority, self._config.policy)
        self.check(params)
        if isinstance(prompt, str):
            token_ids = self._tokenizer.encode(prompt, params.add_special_tokens)
        else:
            token_ids = list(prompt)
        limits = (self._max_model_len, self._text_tokens)
        if params.truncate_prompt_tokens is not None:
            token_ids = truncated(token_ids, params, *limits)
        check_prompt(token_ids, self._vocab_size)
        # The last token generated is never computed, so it needs no slot.
        room = min(self._max_model_len, self._text_tokens + 1) - len(token_ids)
        max_tokens = params.max_tokens or room
        if not 0 < max_tokens <= room:
            max_tokens = resolve_max_tokens(len(token_ids), params, *limits)
        return self._made(token_ids, params, max_tokens, request_id, priority)

    def _made(
        self,
        token_ids: list[int],
        params: SamplingParams,
        max_tokens: int,
        request_id: str | None,
        priority: int,
    ) -> list[Request]:
        arrival_time = time.monotonic()
        requests: list[Request] = []
        if params.cache_salt is not None:
            token_ids = salted(token_ids, params.cache_salt)
        for index in range(params.n):
            arrival, self._num_arrived = self._num_arrived, self._num_arrived + 1
            base = request_id or f"{OWN_PREFIX}{arrival - index}"
            request = Request(
                request_id=base if params.n == 1 else f"{base}.{index}",
                token_ids=list(token_ids),
                params=params,
                seed=resolve_seed(params, self._config.seed, arrival - index, index),
                priority=priority,
                arrival=arrival,
                fork_of=requests[0] if requests and self._forks else None,
                index=index,
                max_tokens=max_tokens,
                arrival_time=arrival_time,
            )
            if params.constraint is not None or params.bad_words or params.thought is not None:
                enders = sorted(self._eos_token_ids)
                request.matcher = matcher(request, self._grammars, self._tokenizer, enders)
            requests.append(request)
        return requests


def check_prompt(token_ids: list[int], vocab_size: int) -> None:
    """Raise InvalidRequestError unless there is at least one token and the model knows them all."""
    if not token_ids:
        raise InvalidRequestError(
            "prompt is empty; send at least one token of text", param="prompt"
        )
    for token in token_ids:
        if type(token) is not int or not 0 <= token < vocab_size:
            raise InvalidRequestError(
                f"prompt holds the token id {token!r}; this model's ids go from 0 to {vocab_size - 1}",
                param="prompt",
            )


def resolve_seed(params: SamplingParams, engine_seed: int, arrival: int, index: int) -> int:
    """The seed of a request's draws, 63 bits: its own, or one made from the engine's and its arrival.

    Of `n` siblings each gets another one, so choice `index` of a seeded request is repeatable too.
    """
    base = params.seed if params.seed is not None else engine_seed + arrival * 0xBF58476D1CE4E5B9
    return (base + index * 0x9E3779B97F4A7C15) & (2**63 - 1)
