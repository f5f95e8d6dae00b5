"""`Pace`: how many drafts a request gets in a step, and when none are made for a while."""

from collections.abc import Sequence

from yaie.core.contracts.drafting import Acceptance, MostWorth
from yaie.engine.drafting.length import NEEDED_TIMES, StepCosts

MOST_DRAFTS = 8
"""For a request in a step, if their number adapts."""
RESTED_STEPS = 16
"""Before it is looked again whether drafts are worth it: looking costs time, too."""
MOST_RESTED = 64
"""Each time that they are not, twice as long as before: at most this. Where drafts are made by a model,
rests are longer by `size / LOOKED_AT`: to look, it must read what all requests have said meanwhile."""
LOOKED_AT = 4
EMPTY_HANDED = 8
"""A proposer that has nothing for any of so many requests is asked again a step later."""
FEWER = 0.5
"""Share of the requests with which drafts are worth another look at once."""


class Pace:
    """A fixed number of drafts, or as many as bring the most tokens a second, by what was measured.

    A number that adapts begins at 1 and may double when it has been tried often enough to be measured:
    a first try is to cost little.
    """

    def __init__(self, most_worth: MostWorth, fixed: int | None, is_free: bool = True) -> None:
        """most_worth: lab 18's. is_free: see `Proposer`."""
        self._is_free = is_free
        self._most_worth = most_worth
        self._fixed = fixed
        self._steps = StepCosts()
        self._drafting = StepCosts(unknown=0.0)
        self._cap = 1
        self._uses = 0  # of that number
        self._rest = 0
        self._length_of_rest = RESTED_STEPS
        self._size = 0  # of the step at which the rest began

    def most(self, size: int, only_decodes: bool) -> int:
        """How many drafts may be asked for in a step of so many requests; 0 while none are wanted."""
        if self._fixed is not None:
            return self._fixed
        if size < FEWER * self._size:
            self._rest, self._length_of_rest, self._size = 0, RESTED_STEPS, 0
        if self._rest > 0 or not only_decodes:
            self._rest = max(0, self._rest - 1)
            return 0
        return self._cap

    def number(self, known: Sequence[tuple[Acceptance, int]], size: int) -> int:
        """How many drafts each of these requests gets, of those that it may have (see `MostWorth`), in a
        step of `size` requests. If none, some steps without follow."""
        if self._fixed is not None:
            return self._fixed
        count = len(known)
        number = self._most_worth(
            known,
            size - count,
            self._steps.seconds,
            lambda number: number * self._drafting.seconds(count),
            max((offered for _, offered in known), default=0),
        )
        if number:
            self._use(number)
            self._length_of_rest = RESTED_STEPS
        else:
            self._begin_rest(known, size)
        return number

    def nothing(self, size: int) -> None:
        """None of so many requests had a draft."""
        if self._fixed is None:
            self._rest = size // EMPTY_HANDED

    def _use(self, number: int) -> None:
        self._uses += number >= self._cap
        if self._uses >= NEEDED_TIMES:
            self._cap, self._uses = min(2 * self._cap, MOST_DRAFTS), 0

    def _begin_rest(self, known: Sequence[tuple[Acceptance, int]], size: int) -> None:
        longer = 1 if self._is_free else max(1, size // LOOKED_AT)
        self._rest, self._size = self._length_of_rest * longer, size
        self._length_of_rest = min(2 * self._length_of_rest, MOST_RESTED)
        self._cap, self._uses = 1, 0
        # Or what was slow or wrong once would never be tried again.
        self._steps.forget()
        self._drafting.forget()
        for acceptance, _ in known:
            acceptance.add(1, 2)

    def stepped(self, num_tokens: int, seconds: float) -> None:
        """A step of so many tokens, all of them decodes and drafts, took so long."""
        self._steps.add(num_tokens, seconds)

    def drafted(self, num_requests: int, number: int, seconds: float) -> None:
        """Making so many drafts for each of these requests took so long."""
        self._drafting.add(num_requests, seconds / number)
