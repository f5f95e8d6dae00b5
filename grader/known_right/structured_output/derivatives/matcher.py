"""A matcher that is a chain of links: each token adds one, and to go back is to follow them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from yaie.core.contracts.constraining import DEAD, ByteAutomaton, TokenMasks


@dataclass(frozen=True)
class Link:
    """Where an output stands, and where it came from."""

    state: int
    before: "Link | None" = None
    has_ended: bool = False


class Matcher:
    """Follows one output through its grammar."""

    def __init__(self, automaton: ByteAutomaton, masks: TokenMasks) -> None:
        self._automaton = automaton
        self._masks = masks
        self._link = Link(automaton.start)

    @property
    def is_complete(self) -> bool:
        return self._link.has_ended or self._automaton.is_final(self._link.state)

    def accept(self, token: int) -> bool:
        link = self._link
        if link.has_ended:
            return False
        if token in self._masks.eos_token_ids:
            if self._automaton.is_final(link.state):
                self._link = Link(DEAD, link, has_ended=True)
            return self._link is not link
        behind = self._behind(link.state, self._masks.tokens[token])
        if not self._masks.tokens[token] or behind == DEAD:
            return False
        self._link = Link(behind, link)
        return True

    def _behind(self, state: int, data: bytes) -> int:
        for byte in data:
            if state == DEAD:
                break
            state = self._automaton.step(state, byte)
        return state

    def rollback(self, count: int) -> None:
        link: Link | None = self._link
        if count < 0:
            raise ValueError("there is no way forward")
        for _ in range(count):
            link = link.before if link is not None else None
        if link is None:
            raise ValueError(f"fewer than {count} tokens were accepted")
        self._link = link

    def fill(self, bits: NDArray[np.uint8]) -> None:
        mask = self._masks.mask(self._link.state)
        bits[:] = 0
        bits[: len(mask)] = mask

    def forced(self, most: int) -> list[int]:
        run = b""
        state = self._link.state
        while (
            not self._automaton.is_final(state)
            and len(live := self._automaton.live_bytes(state)) == 1
        ):
            run += live
            state = self._automaton.step(state, live[0])
        found: list[int] = []
        state = self._link.state
        while run and len(found) < most:
            bits = np.unpackbits(self._masks.mask(state), bitorder="little")
            lengths = [
                (-len(self._masks.tokens[token]), token) for token in np.flatnonzero(bits).tolist()
            ]
            if not lengths or -min(lengths)[0] > len(run):
                break
            token = min(lengths)[1]
            found.append(token)
            data = self._masks.tokens[token]
            state, run = self._behind(state, data), run[len(data) :]
        return found
