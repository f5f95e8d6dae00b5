"""What a worker is told of requests that begin to run: their tokens, and how they want to be drawn."""

from collections.abc import Sequence
from itertools import chain

from yaie.core.request import Request
from yaie.core.step import Extras, Ints, NewSeats
from yaie.engine import asks
from yaie.engine.asks.arrays import floats, ints, longs
from yaie.engine.asks.base import Ask, Vocabulary


def new_seats(requests: Sequence[Request], seats: Ints, vocabulary: Vocabulary) -> NewSeats:
    """These requests as they are now, all of whose tokens are known, in these seats [m]."""
    params = [request.params for request in requests]
    return NewSeats(
        seats=seats,
        tokens=ints(list(chain.from_iterable(request.token_ids for request in requests))),
        num_tokens=ints([len(request.token_ids) for request in requests]),
        num_prompt_tokens=ints([request.num_prompt_tokens for request in requests]),
        temperature=floats([one.temperature for one in params]),
        # More than the vocabulary is all of it, and may be more than 64 bits hold.
        top_k=longs([min(max(0, one.top_k), vocabulary.size) for one in params]),
        top_p=floats([one.top_p for one in params]),
        min_p=floats([one.min_p for one in params]),
        random_seeds=longs([request.seed for request in requests]),
        steps=longs([request.num_output_tokens for request in requests]),
        extras=_extras(requests, vocabulary),
    )


def _extras(requests: Sequence[Request], vocabulary: Vocabulary) -> Extras:
    asking: dict[Ask, list[tuple[int, Request]]] = {}
    for position, request in enumerate(requests):
        for ask in asks.of(request, asks.RULED):
            asking.setdefault(ask, []).append((position, request))
    found = ((ask.name, ask.enter(own, vocabulary)) for ask, own in asking.items())
    return {name: arrays for name, arrays in found if arrays is not None}
