"""What may come next in an output: what its grammar allows, if it has one, less what is not wanted."""

from collections.abc import Sequence

from yaie.core.request import Request
from yaie.engine.input.grammars.matchers import Bits, Matcher, leave_out
from yaie.engine.input.narrowing.base import Narrowing

ALL = 0xFF


class NarrowedMatcher:
    """As `Matcher`, which it stands around. Without a grammar every token may come that the narrowings
    leave."""

    def __init__(
        self,
        request: Request,
        narrowings: Sequence[Narrowing],
        eos_token_ids: Sequence[int],
        grammar: Matcher | None,
    ) -> None:
        self._request = request
        self._narrowings = narrowings
        self._grammar = grammar
        self._enders = {*eos_token_ids, *request.params.stop_token_ids}
        self._num_followed = 0

    @property
    def error(self) -> str | None:
        """Why the grammar cannot go on; None as long as it can."""
        return None if self._grammar is None else self._grammar.error

    def fill_ahead(self, rows: Bits, drafts: Sequence[int]) -> None:
        """Set `rows` [len(drafts) + 1, width / 8]: what may come next, and behind each draft."""
        self._follow()
        if self._grammar is not None:
            self._grammar.fill_ahead(rows, drafts)
        else:
            rows[:] = ALL
            for num_more, bits in enumerate(rows):
                if self._num_followed + num_more < self._request.params.min_tokens:
                    leave_out(bits, self._enders)
        for num_more, bits in enumerate(rows):
            for narrowing in self._narrowings:
                narrowing.narrow(bits, drafts[:num_more])

    def forced(self, most: int) -> list[int]:
        """At most `most` tokens that the grammar says come next. One of them that is not wanted is drawn
        where nothing else may come, and is else thrown away as a draft."""
        return [] if self._grammar is None else self._grammar.forced(most)

    def _follow(self) -> None:
        new = self._request.token_ids[self._request.num_prompt_tokens + self._num_followed :]
        self._num_followed += len(new)
        for narrowing in self._narrowings:
            narrowing.follow(new)
