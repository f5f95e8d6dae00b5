"""Task 21.7: what comes whatever the model says."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from grader.kit import examples, expect, expect_equal, note, start_script, task
from grader.suites.structured_output.language import pattern
from grader.suites.structured_output.vocabulary import EOS, state_behind
from solutions import structured_output as reference
from solutions.structured_output import naive
from yaie.core.grammar import Choice, Grammar, Repeat, any_of, choice, concat, optional, text

BORDER = (
    'What comes behind the certain bytes may belong to the last token: `":` is one token where a colon '
    "follows at once, and two where a space does. A token is certain only if no longer one may come."
)
RUN = (
    "Certain are the bytes up to the first place where two may come, or where the document may end: "
    "there the model has a say."
)
MAY = "Which tokens may come is what the mask says: an end of the sequence only in a final state."
LONGEST = "Cut from the left, each token the longest that may come, so there are few."
ALL = "Every certain token that is left out costs a forward pass."
MOVES = (
    "Behind a forced token the next one is looked for in the state that the token leads to. Here the "
    "same one came again."
)
LOOKS = "forced() looks ahead: what it finds is a proposal, and nothing has been accepted yet."


class At(reference.ByteAutomaton):
    """The reference's automaton, which starts behind some bytes: a matcher that has come so far."""

    def __init__(self, grammar: Grammar, output: bytes) -> None:
        super().__init__(grammar)
        self.start = state_behind(self, output)


def forced(
    part: Any, grammar: Grammar, tokens: list[bytes], output: bytes = b"", most: int = 99
) -> list[bytes]:
    """The texts of the tokens that are forced behind an output. Begins a new script."""
    automaton = At(grammar, output)
    masks = reference.TokenMasks(automaton, reference.TokenTrie(tokens), [EOS])
    start_script()
    note(f"tokens = {tokens}")
    note(f"forced({most}) behind {output!r} of {pattern(grammar)}")
    found = part.Matcher(automaton, masks).forced(most)
    expect(
        all(isinstance(token, int) for token in found),
        f"forced() gives {found}: token ids are integers",
    )
    return [tokens[token] for token in found]


def why_run(grammar: Grammar, output: bytes, got: list[bytes], right: list[bytes]) -> str:
    """What a wrong run of tokens is; "" if that is not known."""
    run, whole, certain = b"".join(got), b"".join(right), naive.forced_bytes(grammar, output)
    if run.startswith(certain) and run != certain:
        return RUN
    if not certain.startswith(run):
        return MOVES if len(got) > 2 and len(set(got[1:])) == 1 else ""
    if run == whole:
        return LONGEST
    if whole.startswith(run):
        return ALL if got == right[: len(got)] else LONGEST
    return BORDER


def expect_forced(
    part: Any,
    grammar: Grammar,
    tokens: list[bytes],
    right: list[bytes],
    what: str,
    output: bytes = b"",
    most: int = 99,
) -> None:
    got = forced(part, grammar, tokens, output, most)
    if got != right:
        expect_equal(got, right, what, why=why_run(grammar, output, got, right))


@task("21.7")
def test_a_key_is_certain(part: Any) -> None:
    """What must come comes as tokens, up to the place where there is a choice."""
    grammar = concat(text(b'{"name":'), choice([text(b"true"), text(b"false")]), text(b"}"))
    singles = [b"", *(bytes([byte]) for byte in b'{"name:trufls}')]
    for tokens, right in (
        (singles, [bytes([byte]) for byte in b'{"name":']),
        ([*singles, b"na", b"name", b'{"', b'":'], [b'{"', b"name", b'":']),
        ([*singles, b'{"name":', b'{"na'], [b'{"name":']),
    ):
        expect_forced(part, grammar, tokens, right, "the forced tokens at the start")
    tokens = [*singles, b"rue", b"}"]
    expect_forced(part, grammar, tokens, [], "the forced tokens at a choice", b'{"name":')
    what = "the forced tokens behind the t of true"
    expect_forced(part, grammar, tokens, [b"rue", b"}"], what, b'{"name":t')


@task("21.7")
def test_a_token_that_may_reach_further_is_not_certain(part: Any) -> None:
    """The run ends before a token that could be longer, if what follows allows it."""
    spaced = concat(text(b'"ab"'), choice([text(b":"), text(b" :")]), text(b"1"))
    singles = [b"", b'"', b"a", b"b", b":", b" ", b"1"]
    for more, right in (
        ([], [b'"', b"a", b"b", b'"']),
        ([b'":'], [b'"', b"a", b"b"]),
        ([b'b":'], [b'"', b"a"]),
        ([b'":', b"ab"], [b'"', b"ab"]),
        ([b'":', b'ab"'], [b'"', b'ab"']),
        ([b'ab":', b'ab"'], [b'"']),
        ([b'"ab" :'], []),
        ([b'"x', b'":2', b'"::'], [b'"', b"a", b"b", b'"']),
    ):
        what = f"the forced tokens, with {more} in the vocabulary"
        expect_forced(part, spaced, [*singles, *more], right, what)


@task("21.7")
def test_the_end_is_a_choice(part: Any) -> None:
    """Where the document may end nothing is certain, though only one byte could follow."""
    tokens = [b"", b"a", b"b", b"ab", b"bb"]
    grammar = concat(text(b"a"), Repeat(text(b"b"), 0, None))
    expect_forced(part, grammar, tokens, [], "the forced tokens of b* at its start", b"a")
    expect_forced(part, grammar, tokens, [], "the forced tokens of ab*, with a token ab")
    expect_forced(part, grammar, tokens[:3], [b"a"], "the forced tokens of ab*")
    what = "the forced tokens of abab, up to its end"
    expect_forced(part, text(b"abab"), [b"", b"ab", b"a", b"b"], [b"ab", b"ab"], what)
    expect_forced(part, text(b"ab"), tokens, [], "the forced tokens behind all", b"ab")
    got = forced(part, text(b"ab"), [b"ab", b"a", b"b"])
    what = "the forced tokens of ab, where an end of the sequence has that text"
    expect_equal(got, [b"a", b"b"], what, why=MAY if b"ab" in got else "")


@task("21.7")
def test_at_most_as_many_as_asked_for(part: Any) -> None:
    """No more tokens than `most`."""
    tokens = [b"", b"a", b"b"]
    for most in range(5):
        right = [b"a", b"b", b"a", b"b"][:most]
        got = forced(part, text(b"ababab"), tokens, most=most)
        why = (
            f"As many as forced(99) gives: `most` is the limit, here {most}."
            if len(got) == 6
            else ""
        )
        expect_equal(got, right, f"forced({most})", why=why)


@task("21.7")
def test_a_vocabulary_that_cannot_write_it(part: Any) -> None:
    """The run ends where no token may come."""
    what = "the forced tokens of abc, without a token for c"
    expect_forced(part, text(b"abc"), [b"", b"a", b"b"], [b"a", b"b"], what)
    expect_equal(forced(part, text(b"abc"), [b"", b"bc"]), [], "the forced tokens, with none for a")


@task("21.7")
def test_tokens_with_the_same_bytes(part: Any) -> None:
    """Of tokens with the same bytes the one with the lowest id is taken."""
    tokens = [b"", b"b", b"ab", b"a", b"ab", b"a"]
    automaton = At(text(b"abab"), b"")
    masks = reference.TokenMasks(automaton, reference.TokenTrie(tokens), [EOS])
    expect_equal(
        part.Matcher(automaton, masks).forced(9), [2, 2], f"forced(9) of abab with {tokens}"
    )


@task("21.7")
def test_looking_changes_nothing(part: Any) -> None:
    """Asked twice, `forced` says the same, and the masks are as before."""
    automaton = At(text(b"abab"), b"")
    masks = reference.TokenMasks(automaton, reference.TokenTrie([b"", b"a", b"b"]), [EOS])
    matcher = part.Matcher(automaton, masks)
    before = masks.mask(automaton.start).tolist()
    first = matcher.forced(9)
    expect_equal(matcher.forced(9), first, "forced(9), asked again", why=LOOKS)
    expect_equal(masks.mask(automaton.start).tolist(), before, "the mask at the start", why=LOOKS)


def grammars() -> st.SearchStrategy[Grammar]:
    """Texts of a few letters, mostly certain, with choices in between."""
    pieces = st.text("ab", min_size=1, max_size=3).map(lambda letters: text(letters.encode()))
    loose = st.builds(optional, pieces) | st.lists(pieces, min_size=2, max_size=2).map(
        lambda two: Choice(tuple(two))
    )
    return st.lists(pieces | pieces | loose, min_size=1, max_size=4).map(
        lambda parts: concat(*parts, any_of(b"ab"))
    )


@task("21.7")
@examples(60)
@given(
    grammar=grammars(),
    more=st.lists(st.text("ab", min_size=2, max_size=4).map(str.encode), max_size=6),
    end=st.integers(0, 4),
)
def test_what_is_forced_is_so_whatever_follows(
    part: Any, grammar: Grammar, more: list[bytes], end: int
) -> None:
    """The forced tokens are those that every way to go on, cut from the left, begins with."""
    tokens = [b"", b"a", b"b", *more]
    output = naive.forced_bytes(grammar, b"")[:end]
    right = [tokens[token] for token in naive.forced(grammar, output, tokens)]
    expect_forced(part, grammar, tokens, right, f"the forced tokens behind {output!r}", output)
