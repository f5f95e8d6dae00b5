"""Masks in the cache that Python has: it forgets what was asked for longest ago."""

from collections.abc import Collection
from functools import lru_cache

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
        self._steps = StepTable(automaton)
        self._cached = lru_cache(maxsize=most)(self._made)

    def allowed(self, state: int) -> NDArray[np.bool_]:
        """[vocab], whether a token has text and all of its bytes lead on from the state."""
        trie = self._trie
        reached = np.zeros(trie.num_nodes, np.bool_)
        level = np.array([0]), np.array([state])
        while level[0].size:
            children, parents = trie.children_of(level[0])
            behind = self._steps(level[1][parents], trie.byte[children])
            children, behind = children[behind != DEAD], behind[behind != DEAD]
            reached[children] = True
            level = children, behind
        return reached[trie.node_of]

    def mask(self, state: int) -> NDArray[np.uint8]:
        """[ceil(vocab / 8)] uint8 of the tokens that may come in a state, the lowest bit first."""
        return self._cached(state)

    def _made(self, state: int) -> NDArray[np.uint8]:
        may = np.zeros(len(self.tokens), np.bool_) if state == DEAD else self.allowed(state).copy()
        for token in self.eos_token_ids:
            may[token] = self._automaton.is_final(state)
        bits = np.packbits(may, bitorder="little")
        bits.flags.writeable = False
        return bits
