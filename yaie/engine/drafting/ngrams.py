"""Drafts from the text itself: what came after its last few tokens when they stood there before."""

from collections.abc import Callable, Sequence
from weakref import WeakKeyDictionary

from yaie.core.contracts.drafting import NgramIndex
from yaie.core.request import Request
from yaie.engine.step.isolation import Isolation

LONGEST = 4
SHORTEST = 2
"""Of the n-grams that are looked up. One token alone repeats in any text and foretells little."""
MOST_READ = 2048
"""Tokens taken into an index at a time: a long prompt is read over several steps."""

MakeIndex = Callable[[int, int], NgramIndex]


class NgramProposer:
    """See `yaie.core.contracts.Proposer`. Prompt lookup decoding (Saxena 2023): no second model."""

    is_free = True

    def __init__(
        self,
        make_index: MakeIndex,
        longest: int = LONGEST,
        shortest: int = SHORTEST,
        isolation: Isolation | None = None,
    ) -> None:
        """make_index: lab 18's. isolation: where requests fail whose index raises."""
        self._make_index = make_index
        self._lengths = longest, shortest
        self._isolation = isolation or Isolation()
        self._indexes: WeakKeyDictionary[Request, NgramIndex] = WeakKeyDictionary()

    def propose(self, asked: Sequence[tuple[Request, int]]) -> list[Sequence[int]]:
        """See the contract."""
        call = self._isolation.call
        return [call(request, (), self._of, request, most) for request, most in asked]

    def _of(self, request: Request, most: int) -> Sequence[int]:
        index = self._indexes.get(request)
        if index is None:
            index = self._indexes[request] = self._make_index(*self._lengths)
        if not index.read(request.token_ids, MOST_READ):
            return ()
        place = index.place(request.token_ids)
        return () if place is None else request.token_ids[place : place + most]
