"""`thinking_token_budget`: a thought that has so many tokens is ended, and the answer begins."""

from collections.abc import Sequence
from copy import copy

from yaie.core.constraint import ThoughtLimit
from yaie.engine.input.grammars.matchers import Bits
from yaie.engine.input.narrowing.base import keep_only
from yaie.models.tokenizer import Tokenizer


class LimitedThought:
    """See `Narrowing`. While a thought is full, only the next token of its end may come.

    Where a grammar does not let it end there, it goes on.
    """

    def __init__(self, limit: ThoughtLimit, tokenizer: Tokenizer) -> None:
        self._end = tokenizer.encode(limit.end, add_special_tokens=False)
        self._place = _Place(limit, tokenizer)

    def follow(self, tokens: Sequence[int]) -> None:
        """See Narrowing."""
        self._place.follow(tokens)

    def narrow(self, bits: Bits, drafts: Sequence[int]) -> None:
        """See Narrowing."""
        place = self._place
        if place.is_over:
            return
        if drafts:
            place = copy(place)
            place.follow(drafts)
        if 0 <= place.num_beyond < len(self._end):
            keep_only(bits, self._end[place.num_beyond])


class _Place:
    """How far an output has come: before its thought, inside or behind it."""

    def __init__(self, limit: ThoughtLimit, tokenizer: Tokenizer) -> None:
        self._limit = limit
        self._tokenizer = tokenizer
        self._is_inside = limit.is_open
        self._num_tokens = 0  # of the thought
        self._text = ""  # as much of it as matters
        self.is_over = False

    @property
    def num_beyond(self) -> int:
        """Tokens that the thought has beyond its limit; negative for those that are left to it."""
        inside = self._is_inside and not self.is_over
        return self._num_tokens - self._limit.num_tokens if inside else -1

    def follow(self, tokens: Sequence[int]) -> None:
        """Go on behind these."""
        for token in tokens:
            if self.is_over:
                return
            # Tags are in ASCII, so it makes no difference what the other bytes are taken for.
            self._text += (self._tokenizer.token_bytes(token) or b"").decode("latin-1")
            if self._is_inside:
                self._go_on()
            else:
                self._look_for_begin()

    def _go_on(self) -> None:
        self._num_tokens += 1
        self.is_over = self._limit.end in self._text
        self._text = self._text[-len(self._limit.end) :]

    def _look_for_begin(self) -> None:
        begin, solid = self._limit.begin, self._text.lstrip()
        if solid.startswith(begin):
            self._is_inside, self._text = True, ""
        elif not begin.startswith(solid):
            self.is_over = True
