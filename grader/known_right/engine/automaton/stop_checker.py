"""Stop strings by an automaton (Aho and Corasick 1975): one transition a letter, no searching.

The reference looks for the stop strings in what it holds. Here a state is a start of a stop string, and
says by itself how much is held back and what has ended.
"""

from collections.abc import Sequence


class StopChecker:
    """See `yaie.core.contracts.StopChecker`."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = frozenset(stops)
        self._starts = {stop[:length] for stop in stops for length in range(len(stop) + 1)} | {""}
        self._next: dict[tuple[str, str], str] = {}
        self._state = ""

    def push(self, text: str) -> tuple[str, str | None]:
        """(text that is safe to show, the stop string that was found or None)."""
        shown: list[str] = []
        for letter in text:
            seen = self._state + letter
            self._state = self._step(self._state, letter)
            shown.append(seen[: len(seen) - len(self._state)])
            if (stop := self._ended(self._state)) is not None:
                shown.append(self._state.removesuffix(stop))
                self._state = ""
                return "".join(shown), stop
        return "".join(shown), None

    def flush(self) -> str:
        """What was held back, when no more text comes."""
        held, self._state = self._state, ""
        return held

    def _step(self, state: str, letter: str) -> str:
        """The longest end of state + letter that is the start of a stop string; looked up once."""
        if (state, letter) not in self._next:
            seen = state + letter
            ends = (seen[at:] for at in range(len(seen) + 1))
            self._next[state, letter] = next(end for end in ends if end in self._starts)
        return self._next[state, letter]

    def _ended(self, state: str) -> str | None:
        """The longest stop string that a state ends with."""
        ends = (state[at:] for at in range(len(state)))
        return next((end for end in ends if end in self._stops), None)
