"""DEAD is a state like any other: `mask` asks `allowed` for it too, and the walk finds nothing."""

from collections import OrderedDict
from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from yaie.core.contracts.constraining import DEAD, ByteAutomaton

from .steps import StepTable
from .trie import TokenTrie

MOST_MASKS = 1024


class TokenMasks:
    """The walk is depth first, node by node on a stack."""

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

    def allowed(self, state: int) -> NDArray[np.bool_]:
        """[vocab], whether a token has text and all of its bytes lead on."""
        trie = self._trie
        is_alive = np.zeros(trie.num_nodes, np.bool_)
        open_nodes = [(0, state)]
        while open_nodes:
            node, at = open_nodes.pop()
            first, count = int(trie.first_child[node]), int(trie.num_children[node])
            after = self._steps(np.full(count, at), trie.byte[first : first + count])
            is_alive[first : first + count] = after != DEAD
            open_nodes += [
                (first + index, found)
                for index, found in enumerate(after.tolist())
                if found != DEAD and trie.num_children[first + index]
            ]
        return is_alive[trie.node_of]

    def mask(self, state: int) -> NDArray[np.uint8]:
        """[ceil(vocab / 8)] uint8 of the tokens that may come in a state, the lowest bit first."""
        if state not in self._kept:
            may_come = self.allowed(state).copy()
            may_come[list(self.eos_token_ids)] = self._automaton.is_final(state)
            bits = np.packbits(may_come, bitorder="little")
            bits.flags.writeable = False
            self._kept[state] = bits
        self._kept.move_to_end(state)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return self._kept[state]
