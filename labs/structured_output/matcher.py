# Lab 21, your part: tasks 21.6, 21.7. The rest is given.
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
        # TODO 21.6: your code here (the reference: 2 lines).
        raise NotImplementedError(
            "structured_output task 21.6: not implemented yet; see chapter Structured output"
        )

    def accept(self, token: int) -> bool:
        """Follow one more token; False, and nothing changes, if it may not come here."""
        # TODO 21.6: your code here (the reference: 12 lines).
        raise NotImplementedError(
            "structured_output task 21.6: not implemented yet; see chapter Structured output"
        )

    def rollback(self, count: int) -> None:
        """Take back the last `count` accepted tokens. Raises ValueError if there are fewer."""
        # TODO 21.6: your code here (the reference: 5 lines).
        raise NotImplementedError(
            "structured_output task 21.6: not implemented yet; see chapter Structured output"
        )

    # ANCHOR_END: follow

    def fill(self, bits: NDArray[np.uint8]) -> None:
        """Set the bits [width] of the tokens that may come next."""
        mask = self._masks.mask(self._states[-1])
        bits[: len(mask)] = mask
        bits[len(mask) :] = 0

    # ANCHOR: forced
    def forced(self, most: int) -> list[int]:
        """At most `most` tokens that come next whatever the model says."""
        # TODO 21.7: your code here (the reference: 13 lines).
        raise NotImplementedError(
            "structured_output task 21.7: not implemented yet; see chapter Structured output"
        )

    def _forced_bytes(self) -> bytes:
        """The bytes that must come: up to a choice, or to where the document may end."""
        # TODO 21.7: your code here (the reference: 8 lines).
        raise NotImplementedError(
            "structured_output task 21.7: not implemented yet; see chapter Structured output"
        )

    # ANCHOR_END: forced
