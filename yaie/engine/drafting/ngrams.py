"""Drafts from the text itself: what came after its last few tokens when they stood there before."""

from collections.abc import Sequence
from weakref import WeakKeyDictionary

from yaie.core.request import Request

LONGEST = 4
SHORTEST = 2
"""Of the n-grams that are looked up. One token alone repeats in any text and foretells little."""
MOST_READ = 2048
"""Tokens taken into an index at a time: a long prompt is read over several steps."""


class NgramProposer:
    """See `yaie.core.contracts.Proposer`. Prompt lookup decoding (Saxena 2023): no second model."""

    def __init__(self, longest: int = LONGEST, shortest: int = SHORTEST) -> None:
        self._longest = longest
        self._shortest = shortest
        self._indexes: WeakKeyDictionary[Request, NgramIndex] = WeakKeyDictionary()

    def propose(self, request: Request, most: int) -> Sequence[int]:
        """See the contract."""
        index = self._indexes.get(request)
        if index is None:
            index = self._indexes[request] = NgramIndex(self._longest, self._shortest)
        if not index.read(request.token_ids, MOST_READ):
            return ()
        place = index.place(request.token_ids)
        return () if place is None else request.token_ids[place : place + most]


class NgramIndex:
    """Where each n-gram of a growing text stood last, for every length from `shortest` to `longest`.

    O(longest - shortest) per new token, whatever the length of the text.
    """

    def __init__(self, longest: int, shortest: int) -> None:
        self._lengths = range(longest, shortest - 1, -1)
        self._places: dict[tuple[int, ...], int] = {}
        self._num_read = 0

    def read(self, text: Sequence[int], most: int) -> bool:
        """Take in up to `most` more n-gram ends of the text, whose read part has only grown; whether it
        is at the end.

        The last token ends no n-gram yet: what follows it is what is asked for.
        """
        end = min(len(text) - 1, self._num_read + most)
        for last in range(self._num_read, end):
            for length in self._lengths:
                if length <= last + 1:
                    self._places[tuple(text[last + 1 - length : last + 1])] = last + 1
        self._num_read = max(self._num_read, end)
        return self._num_read == len(text) - 1

    def place(self, text: Sequence[int]) -> int | None:
        """Behind the latest earlier occurrence of the longest n-gram that the text ends in."""
        for length in self._lengths:
            if length < len(text):
                place = self._places.get(tuple(text[-length:]))
                if place is not None:
                    return place
        return None
