"""Accepted tokens are a chain of pairs, each with the one before; forced tokens are found by a matcher
of its own, which accepts them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from yaie.core.contracts.constraining import DEAD, ByteAutomaton, TokenMasks

Link = tuple[int, int, Any]
"""A state, how many tokens led there, and the link before."""


class Matcher:
    __slots__ = ("_automaton", "_last", "_masks")

    def __init__(self, automaton: ByteAutomaton, masks: TokenMasks) -> None:
        self._automaton = automaton
        self._masks = masks
        self._last: Link = (automaton.start, 0, None)

    @property
    def is_complete(self) -> bool:
        state = self._last[0]
        return self._automaton.is_final(state) or state == DEAD

    def accept(self, token: int) -> bool:
        state, number, _ = self._last
        piece = self._masks.tokens[token]
        if token in self._masks.eos_token_ids:
            if state == DEAD or not self._automaton.is_final(state):
                return False
            state = DEAD
        elif not piece:
            return False
        else:
            for byte in piece:
                state = self._automaton.step(state, byte)
                if state == DEAD:
                    return False
        self._last = (state, number + 1, self._last)
        return True

    def rollback(self, count: int) -> None:
        if count not in range(self._last[1] + 1):
            raise ValueError(f"there are {self._last[1]} tokens to take back, not {count}")
        for _ in range(count):
            self._last = self._last[2]

    def fill(self, bits: NDArray[np.uint8]) -> None:
        mask = self._masks.mask(self._last[0])
        bits[...] = np.pad(mask, (0, len(bits) - len(mask)))

    def forced(self, most: int) -> list[int]:
        other = Matcher(self._automaton, self._masks)
        other._last = self._last
        certain = len(other._certain())
        tokens: list[int] = []
        while certain > 0 and len(tokens) < most:
            allowed = np.flatnonzero(self._masks.allowed(other._last[0]))
            allowed = [t for t in allowed.tolist() if t not in self._masks.eos_token_ids]
            lengths = [len(self._masks.tokens[token]) for token in allowed]
            if not lengths or max(lengths) > certain:
                break
            token = allowed[lengths.index(max(lengths))]
            tokens.append(token)
            certain -= len(self._masks.tokens[token])
            other.accept(token)
        return tokens

    def _certain(self) -> bytes:
        state, run = self._last[0], b""
        while state != DEAD and not self._automaton.is_final(state):
            live = self._automaton.live_bytes(state)
            if len(live) != 1:
                return run
            run, state = run + live, self._automaton.step(state, live[0])
        return run
