"""Vocabularies and automata for the tests of masks and matchers; what counts their work."""

from collections.abc import Sequence
from typing import Any, overload

import numpy as np

from grader.kit.apart import Number
from solutions import structured_output as reference
from yaie.core.contracts.constraining import DEAD
from yaie.core.grammar import Grammar, Repeat, any_of, choice, concat, optional, text

EOS = 0
TOKENS = [
    b"",  # the end of the sequence
    b"{", b"}", b'"', b":", b",", b" ", b"[", b"]", b'{"', b'":', b'","', b'"}', b'": "', b"a", b"b",
    b"ab", b"abc", b"c", b'a"', b'b":', b"\xc3", b"\xa9", b"\xc3\xa9", b"a\xc3", b"\xa9b", b"1", b"12",
    b"-", b"-1", b"0", b"1,", b"true", b"tr", b"ue", b"t", b"r", b"u", b"e", b"true}", b"<|tool|>", b"",
    b"a", b"e}",
]  # fmt: skip
"""Pieces that cross what a grammar has apart, halves of characters, two alike, two without text."""

LETTER = choice([any_of(b"abc"), concat(text(b"\xc3"), text(b"\xa9"))])
STRING = concat(text(b'"'), Repeat(LETTER, 0, 3), text(b'"'))
PAIR = concat(text(b'{"ab":'), optional(text(b" ")), choice([STRING, text(b"true")]), text(b"}"))
NUMBERS = concat(
    text(b"["), Repeat(concat(choice([text(b"1"), text(b"12"), text(b"-1")]), text(b",")), 0, 3)
)
GRAMMARS = {'{"ab": STRING or true}': PAIR, "[(1|12|-1),...": NUMBERS, "STRING": STRING}


class CountingAutomaton:
    """The reference's automaton, whose steps are counted."""

    def __init__(self, grammar: Grammar) -> None:
        self._inner = reference.ByteAutomaton(grammar)
        self.start = self._inner.start
        self.num_steps = 0

    @property
    def num_states(self) -> int:
        return self._inner.num_states

    def step(self, state: int, byte: int) -> int:
        self.num_steps += 1
        return self._inner.step(state, byte)

    def live_bytes(self, state: int) -> bytes:
        return self._inner.live_bytes(state)

    def is_final(self, state: int) -> bool:
        return self._inner.is_final(state)


def state_behind(automaton: Any, data: bytes) -> int:
    state: int = automaton.start
    for byte in data:
        state = automaton.step(state, byte)
    return state


def prefixes(grammar: Grammar, longest: int = 5) -> list[bytes]:
    """What an output may be so far, in tokens of the vocabulary."""
    automaton = reference.ByteAutomaton(grammar)
    masks = reference.TokenMasks(automaton, reference.TokenTrie(TOKENS), [EOS])
    found, new = {b""}, {b""}
    for _ in range(longest):
        new = {
            output + TOKENS[token]
            for output in new
            for token in masks.allowed(state_behind(automaton, output)).nonzero()[0]
        } - found
        found |= new
    return sorted(found)[:: max(1, len(found) // 60)]


class WideTokens(Sequence[bytes]):
    """A vocabulary of so many tokens, of which all but a few have no text."""

    def __init__(self, size: int, texts: dict[int, bytes]) -> None:
        self._size = size
        self._texts = texts

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._size))]
        if not -self._size <= index < self._size:
            raise IndexError(index)
        return self._texts.get(index % self._size, b"")


class WideMasks:
    """Masks over a vocabulary whose ids have 25 bits; each token that has a text is tried."""

    SIZE = 0x1000010
    TOKEN, END = 0x1000007, 0x1000006
    """Ids that are 7 and 6 in their lowest 8, 15 and 24 bits."""

    def __init__(self, automaton: Any, texts: dict[int, bytes]) -> None:
        self.tokens = WideTokens(self.SIZE, texts)
        self.eos_token_ids = frozenset((self.END,))
        self._automaton = automaton
        self._texts = texts

    def allowed(self, state: int) -> Any:
        """[vocab], whether a token has text and all of its bytes lead on."""
        found = np.zeros(self.SIZE, np.bool_)
        for token, data in self._texts.items():
            at = state
            for byte in data:
                at = self._automaton.step(at, byte)
            found[token] = at != DEAD
        return found

    def mask(self, state: int) -> Any:
        """[ceil(vocab / 8)], the lowest bit first."""
        found = self.allowed(state)
        found[self.END] = self._automaton.is_final(state)
        return np.packbits(found, bitorder="little")


class NumberedAutomaton(reference.ByteAutomaton):
    """The reference's automaton, whose states are never the same object as an equal number."""

    def step(self, state: int, byte: int) -> int:
        return Number(super().step(state, byte))
