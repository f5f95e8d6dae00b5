"""Task 21.6: tokens are followed, and taken back."""

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from grader.kit import (
    Machine,
    expect_equal,
    expect_raises,
    note,
    quietly,
    run_machine,
    start_script,
    task,
    watch,
)
from grader.suites.structured_output.language import pattern
from grader.suites.structured_output.vocabulary import EOS, GRAMMARS, PAIR, TOKENS
from solutions import structured_output as reference
from solutions.structured_output import naive
from yaie.core.grammar import Grammar, Repeat, concat, text

STAYS = "A token that may not come is refused with False, and the matcher is where it was before."
END = "The end of the sequence may come when the document is complete, and nothing may come behind it."
BACK = (
    "Keep the state behind each token. Taking back n tokens goes back to the state before them; n may "
    "be 0, and the end of the sequence is a token like any other."
)
COMPLETE = (
    "A document may be complete and still go on; it stays complete behind the end of the sequence."
)
WHOLE = [TOKENS.index(data) for data in (b'{"', b"ab", b'":', b"true", b"}")]
"""A document in tokens."""
END_TEXT = TOKENS.index(b"abc")
"""An end-of-sequence token too, in some tests: with a text."""


def matcher_of(part: Any, grammar: Grammar, tokens: list[bytes] = TOKENS, eos: Any = (EOS,)) -> Any:
    note(f"# a matcher of {pattern(grammar)}")
    automaton = reference.ByteAutomaton(grammar)
    masks = reference.TokenMasks(automaton, reference.TokenTrie(tokens), eos)
    return watch(part.Matcher(automaton, masks), "matcher")


def fill(matcher: Any, width: int = 8) -> list[int]:
    bits = np.full(width, 255, np.uint8)
    quietly(matcher).fill(bits)
    return [int(token) for token in np.flatnonzero(np.unpackbits(bits, bitorder="little"))]


def ids(*texts: bytes) -> list[int]:
    return [TOKENS.index(text) for text in texts]


@task("21.6")
def test_an_output_is_complete_where_the_document_may_end(part: Any) -> None:
    """is_complete holds behind a whole document, and behind the end of the sequence as well."""
    matcher = matcher_of(part, PAIR)
    note(f"# accepted: {[TOKENS[token] for token in WHOLE]}, one after the other")
    for token in WHOLE:
        matcher.accept(token)
    got = matcher.is_complete
    if not got:
        matcher.accept(EOS)
        at_end = " Behind the end of the sequence it is True." if matcher.is_complete else ""
        why = f"The state behind the last token is final.{at_end} {COMPLETE}"
        expect_equal(got, True, "is_complete behind a whole document", why=why)
    matcher.accept(EOS)
    expect_equal(matcher.is_complete, True, "is_complete behind the end", why=COMPLETE)


@task("21.6")
def test_one_token_is_taken_back(part: Any) -> None:
    """`rollback(1)` behind one token is back at the start, and behind two at the first."""
    matcher = matcher_of(part, PAIR)
    seen = [fill(matcher)]
    for token in WHOLE[:2]:
        matcher.accept(token)
        note(f"# {TOKENS[token]!r} was accepted")
        seen.append(fill(matcher))
    for number in (1, 0):
        matcher.rollback(1)
        got = fill(matcher)
        why = f"rollback(1) has taken back no token. {BACK}" if got == seen[number + 1] else BACK
        what = f"what may come after rollback(1) behind {number + 1} tokens"
        expect_equal(got, seen[number], what, why=why)


@task("21.6")
def test_follows_a_document(part: Any) -> None:
    """A document is followed token by token, across whatever the grammar has apart, to its end."""
    for texts in ((b'{"', b"ab", b'":', b" ", b"true", b"}"), (b"{", b'"', b"a", b'b":', b"true}"),
                  (b'{"', b"a", b'b":', b'"', b"a\xc3", b"\xa9b", b'"}')):  # fmt: skip
        matcher = matcher_of(part, PAIR)
        for token in ids(*texts):
            expect_equal(
                matcher.is_complete, False, f"is_complete in the middle of {b''.join(texts)!r}"
            )
            expect_equal(
                matcher.accept(token), True, f"accept({token}), which is {TOKENS[token]!r}"
            )
        expect_equal(matcher.is_complete, True, "is_complete behind the last token", why=COMPLETE)


@task("21.6")
def test_what_may_not_come_changes_nothing(part: Any) -> None:
    """A token that may not come is refused, and the matcher goes on as if it had not been offered."""
    tokens = ids(b'{"', b"ab", b'":')
    matcher = matcher_of(part, PAIR)
    for count, token in enumerate(tokens):
        before = fill(matcher)
        for other in sorted({*range(len(TOKENS))} - {*before}):
            start_script()  # a report has the refused call alone, on a matcher of its own
            alone = matcher_of(part, PAIR)
            for earlier in tokens[:count]:
                alone.accept(earlier)
            what = "the end of the sequence" if other == EOS else repr(TOKENS[other])
            why = END if other == EOS else STAYS
            expect_equal(alone.accept(other), False, f"accept({other}), {what}", why=why)
            told = f"what may come after {TOKENS[other]!r} was refused"
            expect_equal(fill(alone), before, told, why=STAYS)
            expect_equal(
                alone.accept(token), True, f"accept({token}), {TOKENS[token]!r}", why=STAYS
            )
        matcher.accept(token)


@task("21.6")
def test_the_end_of_the_sequence(part: Any) -> None:
    """The end is accepted when the document is complete, and nothing behind it."""
    matcher = matcher_of(part, Repeat(text(b"a"), 1, None), eos=(EOS, END_TEXT))
    a = TOKENS.index(b"a")
    for end in (EOS, END_TEXT):
        expect_equal(
            matcher.accept(end),
            False,
            f"accept({end}), an end of the sequence, at the start",
            why=END,
        )
    matcher.accept(a)
    expect_equal(matcher.is_complete, True, "is_complete behind a of a+", why=COMPLETE)
    matcher.accept(a)
    expect_equal(
        matcher.accept(END_TEXT), True, "accept of the end when the document is complete", why=END
    )
    expect_equal(matcher.is_complete, True, "is_complete behind the end", why=COMPLETE)
    expect_equal(fill(matcher), [], "what may come behind the end", why=END)
    for token in (EOS, END_TEXT, a):
        expect_equal(matcher.accept(token), False, f"accept({token}) behind the end", why=END)
    matcher.rollback(1)
    expect_equal(matcher.accept(a), True, "accept(a) once the end was taken back", why=BACK)


@task("21.6")
def test_an_end_whose_text_would_fit(part: Any) -> None:
    """A token that ends the sequence does that and no more, even if its text could come."""
    matcher = matcher_of(part, concat(text(b"a"), text(b"bc")), eos=(END_TEXT,))
    expect_equal(
        matcher.accept(END_TEXT),
        False,
        "accept of an end of the sequence with the text abc",
        why=END,
    )
    expect_equal(matcher.is_complete, False, "is_complete after that", why=END)


@task("21.6")
def test_tokens_are_taken_back(part: Any) -> None:
    """After `rollback(n)` everything is as it was n tokens before."""
    matcher, seen = matcher_of(part, PAIR), []
    tokens = [*ids(b'{"', b"ab", b'":', b'"', b"a", b'"}'), EOS]
    for token in tokens:
        seen.append((fill(matcher), matcher.is_complete))
        expect_equal(matcher.accept(token), True, f"accept({token})")
    for count in (0, 1, 2, 7):
        matcher.rollback(count)
        now = (fill(matcher), matcher.is_complete) if count else None
        if count:
            expect_equal(now, seen[-count], f"what may come after rollback({count})", why=BACK)
            for token in tokens[-count:]:
                expect_equal(matcher.accept(token), True, f"accept({token}) again", why=BACK)
        else:
            expect_equal(
                fill(matcher), [], "what may come after rollback(0) behind the end", why=BACK
            )


@task("21.6")
def test_no_more_than_was_accepted_can_be_taken_back(part: Any) -> None:
    """Taking back more tokens than were accepted is refused, and changes nothing."""
    matcher = matcher_of(part, PAIR)
    with expect_raises(ValueError, "rollback(1) at the start", why=BACK):
        matcher.rollback(1)
    matcher.accept(TOKENS.index(b'{"'))
    matcher.accept(TOKENS.index(b"1"))  # refused, so it does not count
    with expect_raises(ValueError, "rollback(2) behind one accepted token", why=BACK):
        matcher.rollback(2)
    expect_equal(
        matcher.accept(TOKENS.index(b"ab")), True, "accept after a rollback was refused", why=BACK
    )
    matcher.rollback(2)
    expect_equal(fill(matcher), ids(b"{", b'{"'), "what may come once all was taken back", why=BACK)


class FollowMachine(Machine):
    """Any tokens, offered and taken back, beside what trying every way says of the accepted ones."""

    grades = frozenset({"21.6"})

    @initialize(name=st.sampled_from(sorted(GRAMMARS)))
    def begin(self, name: str) -> None:
        self.grammar = GRAMMARS[name]
        self.matcher = matcher_of(self.part, self.grammar)
        self.accepted: list[int] = []
        self.why = ""  # of what may come after the last call

    def may_come(self) -> list[int]:
        if EOS in self.accepted:
            return []
        output = b"".join(TOKENS[token] for token in self.accepted)
        ends = [EOS] * naive.is_document(self.grammar, output)
        return ends + naive.allowed(self.grammar, output, TOKENS)

    @rule(token=st.integers(0, len(TOKENS) - 1))
    def offer_any(self, token: int) -> None:
        self.offer(token)

    @rule(data=st.data())
    def offer_right(self, data: st.DataObject) -> None:
        if may := self.may_come():
            self.offer(data.draw(st.sampled_from(may)))

    def offer(self, token: int) -> None:
        right = token in self.may_come()
        why = END if token == EOS or EOS in self.accepted else ""
        self.claim(
            "21.6", self.matcher.accept(token), right, f"accept({token}), {TOKENS[token]!r}", why
        )
        self.why = "" if right else STAYS
        if right:
            self.accepted.append(token)

    @precondition(lambda self: hasattr(self, "accepted"))
    @rule(data=st.data())
    def take_back(self, data: st.DataObject) -> None:
        count = data.draw(st.integers(0, len(self.accepted)))
        self.matcher.rollback(count)
        self.accepted = self.accepted[: len(self.accepted) - count]
        self.why = BACK

    @invariant()
    def knows_what_may_come(self) -> None:
        if hasattr(self, "matcher"):
            self.claim("21.6", fill(self.matcher), self.may_come(), "what may come", self.why)
            output = b"".join(TOKENS[token] for token in self.accepted)
            right = naive.is_document(self.grammar, output)
            self.claim("21.6", quietly(self.matcher).is_complete, right, "is_complete", COMPLETE)


@task("21.6")
def test_any_script(part: Any) -> None:
    """After any tokens, offered and taken back, the matcher is where the accepted ones lead."""
    run_machine(FollowMachine, part, runs=40, steps=12)
