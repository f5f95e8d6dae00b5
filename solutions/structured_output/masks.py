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
        # BEGIN SOLUTION 21.4
        trie = self._trie
        reached = np.zeros(trie.num_nodes, np.bool_)
        nodes, states = np.array([0]), np.array([state])
        while len(nodes):
            children, parents = trie.children_of(nodes)
            behind = self._steps(states[parents], trie.byte[children])
            alive = behind != DEAD
            nodes, states = children[alive], behind[alive]
            reached[nodes] = True
        return reached[trie.node_of]
        # END SOLUTION

    # ANCHOR_END: allowed

    # ANCHOR: mask
    def mask(self, state: int) -> NDArray[np.uint8]:
        """[ceil(vocab / 8)] uint8 of the tokens that may come in a state, the lowest bit first."""
        # BEGIN SOLUTION 21.5
        if state in self._kept:
            self._kept.move_to_end(state)
            return self._kept[state]
        allowed = self.allowed(state) if state != DEAD else np.zeros(len(self.tokens), np.bool_)
        allowed[list(self.eos_token_ids)] = self._automaton.is_final(state)
        bits = np.packbits(allowed, bitorder="little")
        bits.flags.writeable = False
        self._kept[state] = bits
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return bits
        # END SOLUTION

    # ANCHOR_END: mask
