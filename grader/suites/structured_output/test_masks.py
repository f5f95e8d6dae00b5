"""Tasks 21.4 and 21.5: masks, and how they are kept."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from grader.kit import examples, expect, expect_equal, note, start_script, task
from grader.suites.structured_output.vocabulary import (
    EOS,
    GRAMMARS,
    PAIR,
    STRING,
    TOKENS,
    CountingAutomaton,
    prefixes,
    state_behind,
)
from solutions import structured_output as reference
from solutions.structured_output import naive
from yaie.core.contracts.constraining import DEAD
from yaie.core.grammar import Repeat, any_of, choice, concat, text

BYTES = (
    "A token may come if all of its bytes lead on, one after the other, whatever the grammar has apart: "
    '`":` ends a key and goes on, and half a character may be a token.'
)
NO_TEXT = (
    "A token without bytes leads nowhere: a model could draw it for ever. Whether the end of the "
    "sequence may come is not a matter of its bytes."
)
ONE_WALK = (
    "Walk the trie from its root: what tokens begin with alike is stepped through once for all of "
    "them, and where a node is DEAD nothing below it is looked at."
)
HIGHEST = (
    "Here the first token of a byte is its highest bit. It is the lowest: packbits with bitorder "
    "'little'."
)
LOWEST = (
    "Bit token % 8 of byte token // 8: packbits with bitorder 'little'. Bits behind the vocabulary "
    "are 0."
)
END = (
    "The end of the sequence may come where the document may end, in a final state, and only there: "
    "earlier the document would be cut off, and without it the model could not stop."
)
KEPT = (
    "What may come depends on the state alone. Outputs meet the same states again and again, so a "
    "mask is worked out once for each and looked up from then on."
)
SPOILED = "Hand out what nobody can write to: `bits.flags.writeable = False` sees to it."
LAST = "The one to go is the one that was asked for longest ago, not the one that was made first."


def allowed_in(part: Any, grammar: Any, data: bytes, tokens: list[bytes]) -> list[int]:
    """Ids of the tokens that the part lets come behind these bytes."""
    automaton = reference.ByteAutomaton(grammar)
    masks = part.TokenMasks(automaton, reference.TokenTrie(tokens), [EOS])
    allowed = masks.allowed(state_behind(automaton, data))
    expect_equal(len(allowed), len(tokens), "how many tokens allowed() tells of")
    return [int(token) for token in np.flatnonzero(allowed)]


@task("21.4")
def test_allowed_tokens(part: Any) -> None:
    """A token is allowed if it has text and all of its bytes lead on."""
    for name, grammar in GRAMMARS.items():
        for data in prefixes(grammar):
            start_script()
            note(f"allowed(the state behind {data!r} of {name})")
            right = naive.allowed(grammar, data, TOKENS)
            got = allowed_in(part, grammar, data, TOKENS)
            why = NO_TEXT if set(got) ^ set(right) <= {EOS, 41} else BYTES
            expect_equal(named(got), named(right), f"the tokens allowed behind {data!r}", why=why)


def named(tokens: list[int]) -> list[str]:
    return [f"{token}: {TOKENS[token]!r}" for token in tokens]


@task("21.4")
@examples(50)
@given(
    tokens=st.lists(st.text("abé", max_size=4).map(str.encode) | st.binary(max_size=2), min_size=1),
    data=st.text("abé", max_size=3).map(str.encode),
)
def test_any_vocabulary(part: Any, tokens: list[bytes], data: bytes) -> None:
    """Whatever the vocabulary, the allowed tokens are those that trying each one finds."""
    grammar = Repeat(choice([text(b"ab"), text("é".encode()), text(b"b")]), 0, 6)
    if not naive.can_begin(grammar, data):
        data = b""
    note(f"tokens = {tokens}")
    note(f"allowed(the state behind {data!r} of (ab|b|é)*)")
    expect_equal(
        allowed_in(part, grammar, data, tokens), naive.allowed(grammar, data, tokens),
        f"the tokens allowed behind {data!r}", why=BYTES,
    )  # fmt: skip


def steps(part: Any, grammar: Any, tokens: list[bytes]) -> int:
    automaton = CountingAutomaton(grammar)
    part.TokenMasks(automaton, reference.TokenTrie(tokens), [EOS]).allowed(automaton.start)
    return automaton.num_steps


@task("21.4")
def test_what_tokens_share_is_walked_once(part: Any) -> None:
    """The work is that of the trie's nodes, not of all bytes of all tokens."""
    counter = Repeat(any_of(b"abcdefghij"), 0, 100)  # whose states are all different
    tokens = [b"a" * 40 + bytes([97 + i, 97 + j]) for i in range(10) for j in range(10)]
    found = steps(part, counter, tokens)
    expect(
        found <= 3 * 151,
        f"a trie of 151 nodes takes {found} steps of the automaton; its tokens have 4200 bytes",
        why=ONE_WALK,
    )


@task("21.4")
def test_nothing_below_a_dead_node_is_looked_at(part: Any) -> None:
    """Where a byte leads to DEAD, no token that begins so costs more."""
    tokens = [b"x" + bytes([i, j]) for i in range(50) for j in range(50)] + [b"ab"]
    found = steps(part, text(b"abc"), tokens)
    expect(
        found <= 300,
        f"of 2501 tokens 2500 die at their first byte, and the walk takes {found} steps",
        why=ONE_WALK,
    )


def lent(
    part: Any, automaton: Any, tokens: list[bytes] = TOKENS, eos: Any = (EOS,), **more: Any
) -> Any:
    """The part's masks with the reference's walk, which is counted: `num_walks`. asks_for_dead: whether
    `mask` leaves DEAD to `allowed`."""

    class Lent(part.TokenMasks):
        num_walks = 0
        asks_for_dead = False

        def allowed(self, state: int) -> Any:
            if state == DEAD:
                self.asks_for_dead = True
                return np.zeros(len(tokens), np.bool_)
            self.num_walks += 1
            return reference.TokenMasks(automaton, trie, eos).allowed(state)

    trie = reference.TokenTrie(tokens)
    return Lent(automaton, trie, eos, **more)


def unpacked(bits: Any) -> list[int]:
    return [8 * i + j for i, byte in enumerate(bits.tolist()) for j in range(8) if byte >> j & 1]


@task("21.5")
def test_bits(part: Any) -> None:
    """A mask has a bit for each token, the lowest first, and none behind the vocabulary."""
    for size in (1, 7, 8, 9, 16, 17, len(TOKENS)):
        tokens = [b"", *(b"a" if i % 3 else b"b" for i in range(1, size))]
        automaton = reference.ByteAutomaton(text(b"a"))
        start_script()
        note(
            f"tokens = {tokens}"
            if size < 20
            else f"# {size} tokens: b'', and then a, b, a, a, b, ..."
        )
        note("mask(the state at the start of 'a')")
        bits = lent(part, automaton, tokens).mask(automaton.start)
        expect_equal(
            (bits.shape, str(bits.dtype)), ((-(-size // 8),), "uint8"), "shape and dtype of a mask"
        )
        right = [token for token in range(1, size) if token % 3]
        why = END if set(unpacked(bits)) == {*right, EOS} else LOWEST
        if np.flatnonzero(np.unpackbits(bits)).tolist() == right:
            why = HIGHEST
        expect_equal(unpacked(bits), right, f"the bits of a vocabulary of {size}", why=why)


@task("21.5")
def test_the_end_may_come_in_final_states(part: Any) -> None:
    """The end of the sequence may come in a final state and in no other, whatever its text."""
    grammar = concat(text(b"a"), Repeat(text(b"b"), 0, None))
    for tokens, eos in (
        ([b"", b"a", b"b", b"<end>"], (0, 3)),
        ([b"b", b"a", b"b"], (0,)),
        ([b"ab", b"a", b"b"], (0,)),
    ):
        for data, final in ((b"", False), (b"a", True), (b"ab", True)):
            automaton = reference.ByteAutomaton(grammar)
            bits = lent(part, automaton, tokens, eos).mask(state_behind(automaton, data))
            may = {token for token in eos if token in unpacked(bits)}
            says = "may" if final else "may not"
            why = END
            if not final and may and tokens[token := min(may)]:
                told = f"The end token {token} has the text {tokens[token]!r}, whose bytes lead on"
                why = f"{told}: it was let come as a text. {END}"
            expect_equal(may, set(eos) if final else set(), f"end tokens behind {data!r}, where the "
                         f"document {says} end", why=why)  # fmt: skip
            rest = [t for t in naive.allowed(grammar, data, tokens) if t not in eos]
            got = [t for t in unpacked(bits) if t not in eos]
            expect_equal(got, rest, f"the other tokens behind {data!r}")


@task("21.5")
def test_masks_of_every_state(part: Any) -> None:
    """Each state's mask has its allowed tokens, and the end where it is final; asked twice, the same."""
    for name, grammar in GRAMMARS.items():
        automaton = reference.ByteAutomaton(grammar)
        masks = lent(part, automaton)
        right = {
            data: naive.allowed(grammar, data, TOKENS) + [EOS] * naive.is_document(grammar, data)
            for data in prefixes(grammar)
        }
        for asked, data in enumerate([*right] * 2):
            start_script()
            if asked:
                note(f"# masks of this grammar that were asked for before: {asked}")
            note(f"mask(the state behind {data!r} of {name})")
            got = unpacked(masks.mask(state_behind(automaton, data)))
            if got != (wanted := sorted(right[data])):
                alone = unpacked(lent(part, automaton).mask(state_behind(automaton, data)))
                why = KEPT if alone == wanted else END if {*got} ^ {*wanted} == {EOS} else ""
                expect_equal(named(got), named(wanted), f"the mask behind {data!r}", why=why)


@task("21.5")
def test_nothing_may_come_in_dead(part: Any) -> None:
    """In DEAD no bit is set, not even that of the end."""
    automaton = reference.ByteAutomaton(PAIR)
    masks = lent(part, automaton)
    bits = masks.mask(DEAD)
    expect_equal((len(bits), unpacked(bits)), (-(-len(TOKENS) // 8), []), "the mask of DEAD")
    if masks.asks_for_dead:
        own = part.TokenMasks(automaton, reference.TokenTrie(TOKENS), [EOS]).allowed(DEAD)
        what = "the tokens of allowed(DEAD), which mask asks for"
        expect_equal(np.flatnonzero(own).tolist(), [], what)


@task("21.5")
def test_a_mask_is_worked_out_once(part: Any) -> None:
    """However often a state comes back, on whatever way, its mask is worked out once."""
    automaton = reference.ByteAutomaton(Repeat(STRING, 0, None))
    masks = lent(part, automaton)
    for data in (b"", b'"', b'"a"', b'"ab"', b'""', b'"a""b"', b'"') * 3:
        masks.mask(state_behind(automaton, data))
    states = {
        state_behind(automaton, data) for data in (b"", b'"', b'"a"', b'"ab"', b'""', b'"a""b"')
    }
    expect_equal(
        masks.num_walks, len(states), f"walks for {len(states)} states, asked 21 times", why=KEPT
    )


@task("21.5")
def test_as_many_masks_are_kept_as_may_be(part: Any) -> None:
    """`most` masks are kept, and the one that was asked for longest ago goes first."""
    automaton = reference.ByteAutomaton(text(b"abcdef"))
    a, b, c = (state_behind(automaton, b"abc"[:n]) for n in range(3))
    masks = lent(part, automaton, most=2)
    made: list[int] = []  # what a queue of two would keep, in the order of making
    walked, asked = 0, set[int]()
    for state, walks in ((a, 1), (b, 2), (a, 2), (c, 3), (a, 3), (c, 3), (b, 4), (c, 4), (a, 5)):
        masks.mask(state)
        note(f"mask({state})")
        if state not in made:
            made, walked = [*made, state][-2:], walked + 1
        why = LAST if masks.num_walks == walked else ""
        asked.add(state)
        if masks.num_walks == len(asked) < walks:
            told = (
                f"mask({state}) was answered without a walk: all {len(asked)} masks that were asked"
            )
            why = f"{told} for are kept, and most is 2."
        expect_equal(masks.num_walks, walks, "walks so far, with most=2", why=why)


@task("21.5")
def test_a_kept_mask_cannot_be_spoiled(part: Any) -> None:
    """What a caller does to a mask does not change the one that is kept."""
    automaton = reference.ByteAutomaton(PAIR)
    masks = lent(part, automaton)
    for _ in range(2):
        right = masks.mask(automaton.start).copy()
        try:
            masks.mask(automaton.start)[:] = 255
        except ValueError:  # it cannot be written to, which is as well
            pass
        got = unpacked(masks.mask(automaton.start))
        expect_equal(
            got, unpacked(right), "the mask, after a caller wrote to what it was given", why=SPOILED
        )
