"""What a request for more than text must satisfy: for log-probabilities, biases, tokens by name, an id
of its own or a place in the queue.
"""

from collections.abc import Collection, Sequence

from yaie.core.errors import InvalidRequestError
from yaie.core.params import SamplingParams
from yaie.core.ranges import RANGES

OWN_PREFIX = "#"
"""Ids that the engine makes up begin with it, and no others."""
MAX_LOGPROB_ENTRIES = 1 << 20
"""In one answer: some 80 MB of JSON."""


def check_answer_size(
    prompts: Sequence[list[int]], params: SamplingParams, max_model_len: int
) -> None:
    """Raise InvalidRequestError if the answer may hold more than MAX_LOGPROB_ENTRIES log-probabilities.

    A single answer without `max_tokens` passes: it is no longer than the context.
    """
    choices = len(prompts) * params.n
    entries, factors = 0, []
    if params.logprobs is not None and (params.max_tokens or choices > 1):
        width = 1 + max(params.logprobs, len(params.logprob_token_ids))
        room = max(max_model_len - min(map(len, prompts)), 1)
        most = params.max_tokens or room
        if params.fits_context:
            most = min(most, room)
        entries += choices * most * width
        factors.append(
            f"max_tokens ({params.max_tokens or f'up to {most}'}) by {width} for each token"
        )
    if params.prompt_logprobs is not None:
        width, told = 1 + params.prompt_logprobs, sum(map(len, prompts))
        entries += told * params.n * width
        factors.append(f"{told} prompt tokens by {width} for each")
    if entries > MAX_LOGPROB_ENTRIES:
        raise InvalidRequestError(
            f"logprobs: the answer could hold {entries} log-probabilities, more than "
            f"{MAX_LOGPROB_ENTRIES}. These multiply: {len(prompts)} prompts by n ({params.n}) by "
            f"{', and '.join(factors)}. Lower one of them, or send several requests.",
            param="logprobs",
        )


def check_biases(params: SamplingParams, vocab_size: int) -> None:
    """Raise InvalidRequestError if `logit_bias` names a token that the model does not have."""
    for token, _ in params.logit_bias:
        if not 0 <= token < vocab_size:
            raise InvalidRequestError(
                f"logit_bias names the token id {token}; this model's ids go from 0 to "
                f"{vocab_size - 1}",
                param="logit_bias",
            )


def check_named_tokens(
    params: SamplingParams, vocab_size: int, eos_token_ids: Collection[int]
) -> None:
    """Raise InvalidRequestError if `logprob_token_ids` names a token that the model does not have, or
    `min_tokens` leaves nothing to draw."""
    for token in params.logprob_token_ids:
        if not 0 <= token < vocab_size:
            raise InvalidRequestError(
                f"logprob_token_ids names the token id {token}; this model's ids go from 0 to "
                f"{vocab_size - 1}",
                param="logprob_token_ids",
            )
    held = {token for token in (*eos_token_ids, *params.stop_token_ids) if 0 <= token < vocab_size}
    if params.min_tokens and len(held) == vocab_size:
        raise InvalidRequestError(
            "stop_token_ids names every token of this model, so none is left for min_tokens",
            param="stop_token_ids",
        )


def check_name_and_place(request_id: str | None, priority: int, policy: str) -> None:
    """Raise InvalidRequestError for an id that the engine could make up, and for a priority that is
    none, or has no effect with this policy."""
    if request_id is not None and request_id.startswith(OWN_PREFIX):
        raise InvalidRequestError(
            f"request_id must not begin with {OWN_PREFIX!r}, as the engine's own ids do; choose "
            "another, or leave it out",
            param="request_id",
        )
    if type(priority) is not int or not RANGES["priority"].holds(priority):
        raise InvalidRequestError(
            f"priority {RANGES['priority'].complaint(priority)}", param="priority"
        )
    if priority != 0 and policy != "priority":
        raise InvalidRequestError(
            f"priority has no effect with this engine's policy ({policy}); leave it out, or start with "
            "--policy priority",
            param="priority",
        )
