"""Masks by a walk over the sorted tokens: neighbours share the states of what they have in common."""

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from yaie.core.contracts.constraining import DEAD, ByteAutomaton

from .trie import TokenTrie

MOST_MASKS = 1024


class TokenMasks:
    """The cache is a dictionary, whose first key is the one that was used longest ago."""

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
        self._most = most
        self._kept: dict[int, NDArray[np.uint8]] = {}
        order = sorted((token, i) for i, token in enumerate(self.tokens) if token)
        before = [b"", *(token for token, _ in order)]
        self._order = [
            (token, i, _num_shared(last, token))
            for (token, i), last in zip(order, before, strict=False)
        ]

    def allowed(self, state: int) -> NDArray[np.bool_]:
        """[vocab], whether all bytes of a token lead on."""
        found = np.zeros(len(self.tokens), np.bool_)
        walk = [state]  # behind each byte of the last token, up to the one that was dead
        for token, number, shared in self._order:
            del walk[shared + 1 :]
            for byte in token[len(walk) - 1 :]:
                if walk[-1] == DEAD:
                    break
                walk.append(self._automaton.step(walk[-1], byte))
            found[number] = walk[-1] != DEAD
        return found

    def mask(self, state: int) -> NDArray[np.uint8]:
        """[ceil(vocab / 8)] uint8 of the tokens that may come in a state, the lowest bit first."""
        bits = self._kept.pop(state, None)
        if bits is None:
            allowed = self.allowed(state) if state != DEAD else np.zeros(len(self.tokens), np.bool_)
            if self.eos_token_ids:
                allowed[sorted(self.eos_token_ids)] = self._automaton.is_final(state)
            bits = np.packbits(allowed, bitorder="little")
            bits.setflags(write=False)
        self._kept[state] = bits
        while len(self._kept) > self._most:
            del self._kept[next(iter(self._kept))]
        return bits


def _num_shared(a: bytes, b: bytes) -> int:
    """How many bytes two tokens begin with in common."""
    pairs = zip(a, b, strict=False)
    return next((i for i, (x, y) in enumerate(pairs) if x != y), min(len(a), len(b)))
