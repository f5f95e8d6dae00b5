"""Vocabularies and automata for the tests of masks and matchers; what counts their work."""

from typing import Any

from solutions import structured_output as reference
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
