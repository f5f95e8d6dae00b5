"""Follows one output through its grammar, token by token."""

import numpy as np
from numpy.typing import NDArray

from yaie.core.contracts.constraining import DEAD, ByteAutomaton, TokenMasks


class Matcher:
    """See `yaie.core.contracts.constraining.Matcher`."""

    def __init__(self, automaton: ByteAutomaton, masks: TokenMasks) -> None:
        self._automaton = automaton
        self._masks = masks
        self._states = [automaton.start]  # one more than tokens were accepted; DEAD after the end

    # ANCHOR: follow
    @property
    def is_complete(self) -> bool:
        """Whether the output is a whole document."""
        # BEGIN SOLUTION 21.6
        state = self._states[-1]
        return state == DEAD or self._automaton.is_final(state)
        # END SOLUTION

    def accept(self, token: int) -> bool:
        """Follow one more token; False, and nothing changes, if it may not come here."""
        # BEGIN SOLUTION 21.6
        state = self._states[-1]
        if token in self._masks.eos_token_ids:
            if not self._automaton.is_final(state):
                return False
            self._states.append(DEAD)
            return True
        for byte in self._masks.tokens[token]:
            state = self._automaton.step(state, byte)
        if state == DEAD or not self._masks.tokens[token]:
            return False
        self._states.append(state)
        return True
        # END SOLUTION

    def rollback(self, count: int) -> None:
        """Take back the last `count` accepted tokens. Raises ValueError if there are fewer."""
        # BEGIN SOLUTION 21.6
        if not 0 <= count < len(self._states):
            raise ValueError(
                f"{len(self._states) - 1} tokens were accepted, {count} cannot go back"
            )
        del self._states[len(self._states) - count :]
        # END SOLUTION

    # ANCHOR_END: follow

    def fill(self, bits: NDArray[np.uint8]) -> None:
        """Set the bits [width] of the tokens that may come next."""
        mask = self._masks.mask(self._states[-1])
        bits[: len(mask)] = mask
        bits[len(mask) :] = 0

    # ANCHOR: forced
    def forced(self, most: int) -> list[int]:
        """At most `most` tokens that come next whatever the model says."""
        # BEGIN SOLUTION 21.7
        tokens: list[int] = []
        state, run = self._states[-1], self._forced_bytes()
        while run and len(tokens) < most:
            mask = np.unpackbits(self._masks.mask(state), bitorder="little")
            allowed = np.flatnonzero(mask).tolist()
            longest = max(allowed, key=lambda token: len(self._masks.tokens[token]), default=None)
            # It may reach beyond the run: then what comes behind the run decides.
            if longest is None or len(self._masks.tokens[longest]) > len(run):
                break
            tokens.append(longest)
            for byte in self._masks.tokens[longest]:
                state = self._automaton.step(state, byte)
            run = run[len(self._masks.tokens[longest]) :]
        return tokens
        # END SOLUTION

    def _forced_bytes(self) -> bytes:
        """The bytes that must come: up to a choice, or to where the document may end."""
        # BEGIN SOLUTION 21.7
        state, run = self._states[-1], bytearray()
        while not self._automaton.is_final(state):
            live = self._automaton.live_bytes(state)
            if len(live) != 1:
                break
            run += live
            state = self._automaton.step(state, live[0])
        return bytes(run)
        # END SOLUTION

    # ANCHOR_END: forced
