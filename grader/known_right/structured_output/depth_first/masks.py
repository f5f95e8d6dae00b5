"""The trie is walked in depth, on lists; a mask is the bytes of one large integer."""

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from yaie.core.contracts.constraining import DEAD, ByteAutomaton

from .trie import TokenTrie


class TokenMasks:
    def __init__(
        self,
        automaton: ByteAutomaton,
        trie: TokenTrie,
        eos_token_ids: Collection[int],
        most: int = 1024,
    ) -> None:
        self.tokens = trie.tokens
        self.eos_token_ids = frozenset(eos_token_ids)
        self._automaton, self._trie, self._most = automaton, trie, most
        self._first, self._count = trie.first_child.tolist(), trie.num_children.tolist()
        self._byte = trie.byte.tolist()
        self._kept: dict[int, NDArray[np.uint8]] = {}

    def allowed(self, state: int) -> NDArray[np.bool_]:
        reached = np.zeros(self._trie.num_nodes, dtype=bool)
        if state == DEAD:
            return reached[self._trie.node_of]
        step, stack = self._automaton.step, [(0, state)]
        while stack:
            node, here = stack.pop()
            first = self._first[node]
            for child in range(first, first + self._count[node]):
                there = step(here, self._byte[child])
                if there != DEAD:
                    reached[child] = True
                    stack.append((child, there))
        return reached[self._trie.node_of]

    def mask(self, state: int) -> NDArray[np.uint8]:
        found = self._kept.pop(state, None)
        if found is None:
            found = self._made(state)
            while len(self._kept) >= max(self._most, 1):
                del self._kept[next(iter(self._kept))]
        self._kept[state] = found
        return found

    def _made(self, state: int) -> NDArray[np.uint8]:
        bits = 0
        if state != DEAD:
            ends = self.eos_token_ids
            tokens = set(np.flatnonzero(self.allowed(state)).tolist()) - ends
            if self._automaton.is_final(state):
                tokens |= ends
            for token in tokens:
                bits |= 1 << token
        width = -(-len(self.tokens) // 8)
        return np.frombuffer(bits.to_bytes(width, "little"), dtype=np.uint8)
