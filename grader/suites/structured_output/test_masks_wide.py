"""Tasks 21.4 and 21.5: one object asked about many states, long tokens, large tries."""

from typing import Any

import numpy as np

from grader.kit import expect, expect_equal, note, start_script, task
from grader.kit.memory import kept_by
from grader.suites.structured_output.test_masks import lent, named, unpacked
from grader.suites.structured_output.vocabulary import (
    EOS,
    GRAMMARS,
    PAIR,
    TOKENS,
    prefixes,
    state_behind,
)
from solutions import structured_output as reference
from solutions.structured_output import naive
from yaie.core.grammar import Repeat, any_of, text

EACH = (
    "What is allowed follows from this state alone: an array that an earlier call has filled still has "
    "what belongs to another state."
)
WIDE = (
    "The trie of a vocabulary has some hundred thousand nodes, more than 16 bits can tell apart, and "
    "no contract limits the bytes of a token."
)
PACKED = (
    "A mask has one bit for each token, and a thousand of them are kept for each schema. What they "
    "were packed from is eight times as large."
)
FAR = 70_000


class FarTrie(reference.TokenTrie):
    """A trie whose nodes but the root have numbers from FAR on, as most of a large one have."""

    def __init__(self, tokens: list[bytes]) -> None:
        super().__init__(tokens)
        gap = np.zeros(FAR, np.int64)
        self.first_child = self._apart(self.first_child + FAR, gap)
        self.num_children = self._apart(self.num_children, gap)
        self.byte = self._apart(self.byte, gap)
        self.node_of = np.where(self.node_of > 0, self.node_of + FAR, 0)

    @staticmethod
    def _apart(values: Any, gap: Any) -> Any:
        return np.concatenate([values[:1], gap, values[1:]])


@task("21.4")
def test_one_walk_says_nothing_of_the_next(part: Any) -> None:
    """Asked about many states, `allowed` gives for each what an object of its own gives."""
    for name, grammar in GRAMMARS.items():
        automaton = reference.ByteAutomaton(grammar)
        masks = part.TokenMasks(automaton, reference.TokenTrie(TOKENS), [EOS])
        for data in prefixes(grammar)[:20] * 2:
            start_script()
            note("# the same masks have been asked about other states before")
            note(f"allowed(the state behind {data!r} of {name})")
            found = masks.allowed(state_behind(automaton, data))
            expect_equal(str(found.dtype), "bool", "the dtype of what allowed gives")
            got = [int(token) for token in np.flatnonzero(found)]
            right = naive.allowed(grammar, data, TOKENS)
            expect_equal(named(got), named(right), f"the tokens allowed behind {data!r}", why=EACH)
            if found.flags.writeable:
                found[:] = True  # it was made for this call


@task("21.4")
def test_long_tokens_and_large_numbers(part: Any) -> None:
    """A token may have many bytes, and nodes have numbers beyond 16 bits."""
    tokens = [b"", b"a", b"a" * 300, b"a" * 299 + b"b", b"ab", b"ba"]
    right = [token for token, data in enumerate(tokens) if data and not data.strip(b"a")]
    grammar = Repeat(any_of(b"a"), 0, None)
    for what, trie in (
        ("tokens of 300 bytes", reference.TokenTrie(tokens)),
        (f"nodes from {FAR:,} on", FarTrie(tokens)),
    ):
        start_script()
        note(f"# {what}, tokens: b'', a, 300 a, 299 a and a b, ab, ba")
        note("allowed(the start of a*)")
        automaton = reference.ByteAutomaton(grammar)
        found = part.TokenMasks(automaton, trie, [EOS]).allowed(automaton.start)
        got = [int(token) for token in np.flatnonzero(found)]
        expect_equal(got, right, f"the tokens allowed at the start of a*, with {what}", why=WIDE)


@task("21.5")
def test_a_kept_mask_has_a_bit_for_each_token(part: Any) -> None:
    """What is kept of a state is its mask: a byte for eight tokens."""
    vocab, states = 8192, iter(range(1_000_000))

    class Given(part.TokenMasks):
        def allowed(self, state: int) -> Any:
            return np.zeros(vocab, np.bool_)

    automaton = reference.ByteAutomaton(Repeat(text(b"a"), 0, None))
    automaton.is_final = lambda state: False  # type: ignore[method-assign]
    masks = Given(automaton, reference.TokenTrie([b""] * vocab), [EOS])
    note(f"# masks of new states, one after the other, with a vocabulary of {vocab:,} tokens")
    kept = kept_by(lambda: masks.mask(next(states)))
    problem = f"each state for which a mask was asked keeps {kept:,.0f} bytes"
    expect(kept <= 3 * vocab / 8, f"{problem}; a mask has {vocab // 8:,}", why=PACKED)


@task("21.5")
def test_one_mask_may_be_kept_and_there_may_be_no_end(part: Any) -> None:
    """With most=1 the last mask is kept; a model may have no end of the sequence."""
    automaton = reference.ByteAutomaton(PAIR)
    masks = lent(part, automaton, most=1)
    for number, data in enumerate((b"", b"", b"{", b"{")):
        masks.mask(state_behind(automaton, data))
        note(f"mask(the state behind {data!r}), with most=1")
        expect_equal(masks.num_walks, number // 2 + 1, "walks so far, with most=1")
    start_script()
    note("mask(the start), eos_token_ids=()")
    bits = lent(part, automaton, eos=()).mask(automaton.start)
    right = naive.allowed(PAIR, b"", TOKENS)
    expect_equal(unpacked(bits), right, "the mask at the start, where no token is an end")
