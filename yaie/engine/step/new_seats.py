"""What a worker is told of requests that begin to run: their tokens, and how they want to be drawn."""

from collections.abc import Collection, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from yaie.core.ranges import MAX_TOKENS
from yaie.core.request import Request
from yaie.core.step import Ints, NewSeats, Pairs


def new_seats(
    requests: Sequence[Request],
    seats: Ints,
    vocab_size: int,
    eos_token_ids: Collection[int] = (),
) -> NewSeats:
    """These requests as they are now, all of whose tokens are known, in these seats [m].

    eos_token_ids: held back with a request's stop tokens until it has its `min_tokens`.
    """
    params = [request.params for request in requests]
    held = [_held_tokens(request, vocab_size, eos_token_ids) for request in requests]
    biases = [
        (position, token, bias)
        for position, one in enumerate(params)
        for token, bias in one.logit_bias
    ]
    return NewSeats(
        seats=seats,
        tokens=ints(list(chain.from_iterable(request.token_ids for request in requests))),
        num_tokens=ints([len(request.token_ids) for request in requests]),
        num_prompt_tokens=ints([request.num_prompt_tokens for request in requests]),
        temperature=_floats([one.temperature for one in params]),
        # More than the vocabulary is all of it, and may be more than 64 bits hold.
        top_k=_longs([min(max(0, one.top_k), vocab_size) for one in params]),
        top_p=_floats([one.top_p for one in params]),
        min_p=_floats([one.min_p for one in params]),
        presence=_floats([one.presence_penalty for one in params]),
        frequency=_floats([one.frequency_penalty for one in params]),
        repetition=_floats([one.repetition_penalty for one in params]),
        random_seeds=_longs([request.seed for request in requests]),
        steps=_longs([request.num_output_tokens for request in requests]),
        logprobs=_counts([one.logprobs for one in params]),
        prompt_logprobs=_counts([one.prompt_logprobs for one in params]),
        biases=np.array([pair[:2] for pair in biases], dtype=np.int64).reshape(-1, 2),
        bias_values=_floats([bias for _, _, bias in biases]),
        constrained=np.array([request.matcher is not None for request in requests], np.bool_),
        min_tokens=_longs(
            # No output is longer, whatever was asked for.
            [
                min(one.min_tokens, MAX_TOKENS) if own else 0
                for one, own in zip(params, held, strict=True)
            ]
        ),
        held=_pairs(held),
        logprob_tokens=_pairs([one.logprob_token_ids for one in params]),
    )


def _held_tokens(request: Request, vocab_size: int, eos_token_ids: Collection[int]) -> list[int]:
    """What may not be drawn before `min_tokens`. Of a constrained request its matcher sees to that."""
    params = request.params
    if params.min_tokens <= request.num_output_tokens or request.matcher is not None:
        return []
    return sorted(t for t in {*eos_token_ids, *params.stop_token_ids} if 0 <= t < vocab_size)


def ints(values: list[int]) -> Ints:
    """[n] int32."""
    return np.array(values, dtype=np.int32)


def _counts(values: list[int | None]) -> Ints:
    """-1 for None."""
    return ints([-1 if value is None else value for value in values])


def _pairs(tokens: Sequence[Sequence[int]]) -> Pairs:
    """(position, token) of each token of each position."""
    pairs = [(position, token) for position, own in enumerate(tokens) for token in own]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def _longs(values: list[int]) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


def _floats(values: list[float]) -> NDArray[np.float32]:
    return np.array(values, dtype=np.float32)
