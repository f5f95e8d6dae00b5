"""A matcher that asks the mask whether a token may come, and keeps its states in a tuple."""

import numpy as np
from numpy.typing import NDArray

from yaie.core.contracts.constraining import DEAD, ByteAutomaton, TokenMasks


class Matcher:
    """See `yaie.core.contracts.constraining.Matcher`."""

    def __init__(self, automaton: ByteAutomaton, masks: TokenMasks) -> None:
        self._automaton = automaton
        self._masks = masks
        self._states: tuple[int, ...] = (automaton.start,)

    @property
    def is_complete(self) -> bool:
        return self._states[-1] == DEAD or self._automaton.is_final(self._states[-1])

    def accept(self, token: int) -> bool:
        byte, bit = divmod(token, 8)
        if not int(self._masks.mask(self._states[-1])[byte]) >> bit & 1:
            return False
        self._states += (self._behind(self._states[-1], token),)
        return True

    def _behind(self, state: int, token: int) -> int:
        if token in self._masks.eos_token_ids:
            return DEAD
        for byte in self._masks.tokens[token]:
            state = self._automaton.step(state, byte)
        return state

    def rollback(self, count: int) -> None:
        if not 0 <= count < len(self._states):
            raise ValueError(f"{count} tokens cannot go back")
        self._states = self._states[: len(self._states) - count]

    def fill(self, bits: NDArray[np.uint8]) -> None:
        mask = self._masks.mask(self._states[-1])
        bits[: len(mask)] = mask
        bits[len(mask) :] = 0

    def forced(self, most: int) -> list[int]:
        return self._cut(self._states[-1], self._run(self._states[-1], b""), most)

    def _run(self, state: int, run: bytes) -> bytes:
        """The bytes that must come behind a state."""
        found = bytearray(run)
        while not self._automaton.is_final(state):
            live = self._automaton.live_bytes(state)
            if len(live) != 1:
                break
            found.append(live[0])
            state = self._automaton.step(state, live[0])
        return bytes(found)

    def _cut(self, state: int, run: bytes, most: int) -> list[int]:
        """The run in tokens, by recursion: a token is a byte at least, and there are few."""
        if not run or most < 1:
            return []
        tokens = self._masks.tokens
        may = np.flatnonzero(np.unpackbits(self._masks.mask(state), bitorder="little")).tolist()
        token = min(may, key=lambda token: (-len(tokens[token]), token), default=None)
        if token is None or len(tokens[token]) > len(run):
            return []
        rest = run[len(tokens[token]) :]
        return [token, *self._cut(self._behind(state, token), rest, most - 1)]
