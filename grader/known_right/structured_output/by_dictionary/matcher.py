"""Certain tokens are looked up by their bytes, in order of their length, and those that reach beyond
them are found among the sorted ones."""

from bisect import bisect_left
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from yaie.core.contracts.constraining import DEAD, ByteAutomaton, TokenMasks


class Matcher:
    def __init__(self, automaton: ByteAutomaton, masks: TokenMasks) -> None:
        self._automaton, self._masks = automaton, masks
        self._past: list[int] = []
        self._state = automaton.start

    @cached_property
    def _ids(self) -> dict[bytes, int]:
        """The lowest token with these bytes."""
        ids: dict[bytes, int] = {}
        for token, piece in enumerate(self._masks.tokens):
            if piece and token not in self._masks.eos_token_ids:
                ids.setdefault(piece, token)
        return ids

    @cached_property
    def _sorted(self) -> list[bytes]:
        return sorted(self._ids)

    def _after(self, state: int, piece: bytes) -> int:
        for byte in piece:
            if state == DEAD:
                break
            state = self._automaton.step(state, byte)
        return state

    @property
    def is_complete(self) -> bool:
        return self._state == DEAD or self._automaton.is_final(self._state)

    def accept(self, token: int) -> bool:
        if token in self._masks.eos_token_ids:
            behind, fits = DEAD, self._automaton.is_final(self._state)
        else:
            piece = self._masks.tokens[token]
            behind = self._after(self._state, piece)
            fits = bool(piece) and behind != DEAD
        if fits:
            self._past.append(self._state)
            self._state = behind
        return fits

    def rollback(self, count: int) -> None:
        if count < 0 or count > len(self._past):
            raise ValueError(f"cannot take back {count} of {len(self._past)} tokens")
        if count:
            self._state = self._past[-count]
            del self._past[-count:]

    def fill(self, bits: NDArray[np.uint8]) -> None:
        mask = self._masks.mask(self._state)
        bits.fill(0)
        np.copyto(bits[: mask.size], mask)

    @cached_property
    def _widest(self) -> int:
        return max(map(len, self._sorted), default=0)

    def forced(self, most: int) -> list[int]:
        found: list[int] = []
        run, states = self._run()
        at = 0
        while len(found) < most and at < len(run):
            ahead = run[at : at + self._widest]
            if at + len(ahead) == len(run) and self._reaches_beyond(ahead, states[-1]):
                break
            pieces = (ahead[:length] for length in range(len(ahead), 0, -1))
            piece = next((piece for piece in pieces if piece in self._ids), b"")
            if not piece:
                break
            found.append(self._ids[piece])
            at += len(piece)
        return found

    def _run(self) -> tuple[bytes, list[int]]:
        """The bytes that are certain, and the state before each and behind the last one."""
        run, states = bytearray(), [self._state]
        while states[-1] != DEAD and not self._automaton.is_final(states[-1]):
            live = self._automaton.live_bytes(states[-1])
            if len(live) > 1:
                break
            run += live
            states.append(self._after(states[-1], live))
        return bytes(run), states

    def _reaches_beyond(self, rest: bytes, behind: int) -> bool:
        """Whether a token begins with the rest of the run, goes on, and may come."""
        at = bisect_left(self._sorted, rest + b"\0")
        while at < len(self._sorted) and self._sorted[at].startswith(rest):
            if self._after(behind, self._sorted[at][len(rest) :]) != DEAD:
                return True
            at += 1
        return False
