"""Steps of an automaton, many at once: a table that fills as it is asked."""

import numpy as np
from numpy.typing import NDArray

from yaie.core.contracts.constraining import DEAD, ByteAutomaton

UNKNOWN = -2


class StepTable:
    """`automaton.step` for arrays. Each pair of a state and a byte is asked for once."""

    def __init__(self, automaton: ByteAutomaton) -> None:
        self._automaton = automaton
        self._table = np.full((64, 256), UNKNOWN, np.int32)

    def __call__(self, states: NDArray[np.int64], values: NDArray[np.int64]) -> NDArray[np.int64]:
        """states: [n]. values: [n] bytes. Returns the states after them, [n]; DEAD comes after DEAD."""
        found = np.full(len(states), DEAD, np.int64)
        alive = states != DEAD
        found[alive] = self._looked_up(states[alive], values[alive])
        return found

    def _looked_up(self, states: NDArray[np.int64], values: NDArray[np.int64]) -> NDArray[np.int32]:
        """The same for states that are not DEAD: -1 would be the table's last row."""
        while self._automaton.num_states > len(self._table):
            self._table = np.concatenate([self._table, np.full_like(self._table, UNKNOWN)])
        found = self._table[states, values]
        unknown = found == UNKNOWN
        if unknown.any():
            for pair in np.unique(states[unknown] * 256 + values[unknown]).tolist():
                state, byte = divmod(pair, 256)
                self._table[state, byte] = self._automaton.step(state, byte)
            found = self._table[states, values]
        return found
