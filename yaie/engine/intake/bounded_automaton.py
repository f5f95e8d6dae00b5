"""Lab 21's automaton with a limit on its states and on the time that is spent in it.

Masks are made by a part that may be a learner's, in one call on the engine's thread. But it steps
through the automaton for each new pair of a state and a byte: there it can be interrupted.
"""

import math
from typing import Any

from yaie.core.contracts import constraining
from yaie.engine.intake import work_clock
from yaie.engine.intake.matchers import OverBudgetError

CALLS = 16
"""Between two looks at the clock. A step takes a tenth of a millisecond where 256 places are open."""
MOST_MADE = 1 << 16
"""States that are made, whatever the size of the grammar: twice as many as it may have places."""

TOO_MANY = (
    "it needs more than {states} states to be followed. Make the schema simpler: fewer and shorter "
    "arrays and strings of limited length"
)
IN_TIME = (
    "it took too long to find what may come next, for which all other requests wait. Make the schema "
    "simpler: fewer alternatives, shorter constants"
)


class BoundedAutomaton:
    """See `yaie.core.contracts.constraining.ByteAutomaton`.

    deadline: when what is asked for now must be done, of `work_time`. is_spent: whether something
    was not done in time, or there are too many states.
    """

    def __init__(self, automaton: constraining.ByteAutomaton) -> None:
        self._automaton = automaton
        self._calls = 0
        self.deadline = math.inf
        self.is_spent = False

    def __getattr__(self, name: str) -> Any:
        """What a learner's masks and matcher know of their own automaton beyond the contract."""
        if name.startswith("__") or name == "_automaton":
            raise AttributeError(name)
        return getattr(self._automaton, name)

    @property
    def start(self) -> int:
        return self._automaton.start

    @property
    def num_states(self) -> int:
        return self._automaton.num_states

    def step(self, state: int, byte: int) -> int:
        """Raises OverBudgetError, as the others do."""
        self._look()
        return self._automaton.step(state, byte)

    def live_bytes(self, state: int) -> bytes:
        self._look()
        return self._automaton.live_bytes(state)

    def is_final(self, state: int) -> bool:
        self._look()
        return self._automaton.is_final(state)

    def _look(self) -> None:
        self._calls += 1
        if self._calls % CALLS:
            return
        if self._automaton.num_states > MOST_MADE:
            self.is_spent = True
            raise OverBudgetError(TOO_MANY.format(states=MOST_MADE))
        if work_clock.work_time() > self.deadline:
            self.is_spent = True
            raise OverBudgetError(IN_TIME)
