# Lab 21, your part: tasks 21.4, 21.5. The rest is given.
"""Which tokens may come next in a state: found by a walk over the vocabulary's trie, and kept."""

from collections import OrderedDict
from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from yaie.core.contracts.constraining import DEAD, ByteAutomaton

from .steps import StepTable
from .trie import TokenTrie

MOST_MASKS = 1024


class TokenMasks:
    """See `yaie.core.contracts.constraining.TokenMasks`."""

    def __init__(
        self,
        automaton: ByteAutomaton,
        trie: TokenTrie,
        eos_token_ids: Collection[int],
        most: int = MOST_MASKS,
    ) -> None:
        self.tokens = trie.tokens
        self.eos_token_ids = frozenset(eos_token_ids)
        self._automaton = automaton
        self._trie = trie
        self._most = most
        self._steps = StepTable(automaton)
        self._kept: OrderedDict[int, NDArray[np.uint8]] = OrderedDict()

    # ANCHOR: allowed
    def allowed(self, state: int) -> NDArray[np.bool_]:
        """[vocab], whether a token has text and all of its bytes lead on from the state.

        A node is looked at only if its parent's bytes lead on, and once for all tokens that pass it.
        """
        # TODO 21.4: your code here (the reference: 10 lines).
        raise NotImplementedError(
            "structured_output task 21.4: not implemented yet; see chapter Structured output"
        )

    # ANCHOR_END: allowed

    # ANCHOR: mask
    def mask(self, state: int) -> NDArray[np.uint8]:
        """[ceil(vocab / 8)] uint8 of the tokens that may come in a state, the lowest bit first."""
        # TODO 21.5: your code here (the reference: 11 lines).
        raise NotImplementedError(
            "structured_output task 21.5: not implemented yet; see chapter Structured output"
        )

    # ANCHOR_END: mask
