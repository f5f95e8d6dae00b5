"""Tasks 21.6 and 21.7: matchers side by side, one that goes on, and masks that were not asked for."""

from typing import Any

from grader.kit import expect, expect_equal, note, start_script, task
from grader.suites.structured_output.test_matcher import fill, ids
from grader.suites.structured_output.vocabulary import EOS, PAIR, TOKENS
from solutions import structured_output as reference
from yaie.core.grammar import choice, text

OWN = (
    "Requests with the same schema share the automaton and the masks, and each follows its own "
    "output: a matcher's states are its own."
)
NO_MASK = (
    "A walk over the vocabulary is for the sampler, and its mask is kept by the state. Whether one "
    "token may come is said by its bytes, and whether the document is complete by `is_final`."
)
NOW = "What is certain depends on where the output is now: a token that comes or goes changes it."
MORE = "What is certain does not depend on how many tokens were asked for before."
FEW_MASKS = (
    "Only as many tokens are looked for as were asked for: each of them takes a mask, which is a walk "
    "over the vocabulary."
)


class CountedMasks(reference.TokenMasks):
    """The reference's masks. walks: over the vocabulary."""

    walks = 0

    def allowed(self, state: int) -> Any:
        self.walks += 1
        return super().allowed(state)


@task("21.6")
def test_matchers_side_by_side(part: Any) -> None:
    """Two matchers of one automaton follow an output each."""
    automaton = reference.ByteAutomaton(PAIR)
    masks = reference.TokenMasks(automaton, reference.TokenTrie(TOKENS), [EOS])
    first, second = (part.Matcher(automaton, masks) for _ in range(2))
    note("first, second = Matcher(automaton, masks), Matcher(automaton, masks)")
    start = fill(second)
    for token in ids(b'{"', b"ab", b'":', b"true}"):
        note(f"first.accept({token})")
        expect_equal(
            first.accept(token), True, f"first.accept({token}), {TOKENS[token]!r}", why=OWN
        )
        expect_equal(
            fill(second), start, "what may come in the second, which is at its start", why=OWN
        )
    second.accept(TOKENS.index(b"{"))
    note("second.accept of {")
    expect_equal(first.is_complete, True, "first.is_complete behind a whole document", why=OWN)
    third = part.Matcher(automaton, masks)
    note("third = Matcher(automaton, masks)")
    expect_equal(fill(third), start, "what may come in a third one", why=OWN)
    expect_equal(first.is_complete, True, "first.is_complete, once there is a third", why=OWN)


@task("21.6")
def test_a_state_is_walked_once(part: Any) -> None:
    """accept and is_complete walk over no vocabulary for a state that the output has been in before."""
    automaton = reference.ByteAutomaton(PAIR)
    masks = CountedMasks(automaton, reference.TokenTrie(TOKENS), [EOS])
    matcher = part.Matcher(automaton, masks)
    before = 0
    for number in range(2):
        for token in (*ids(b'{"', b"ab", b'":', b"true}"), EOS):
            matcher.accept(token)
            note(f"accept({token}), is_complete")
            expect(isinstance(matcher.is_complete, bool), "is_complete is no bool")
        if number:
            problem = f"the same tokens, once more, take {masks.walks - before} walks"
            expect(masks.walks == before, f"{problem} over the vocabulary", why=NO_MASK)
        before = masks.walks
        matcher.rollback(5)
        note("rollback(5)")


def forced_matcher(part: Any, data: bytes, tokens: list[bytes]) -> tuple[Any, CountedMasks]:
    """A matcher at the start of a text, and its masks."""
    automaton = reference.ByteAutomaton(text(data))
    masks = CountedMasks(automaton, reference.TokenTrie(tokens), [EOS])
    note(f"tokens = {tokens}")
    note(f"matcher = Matcher of {data.decode()!r}")
    return part.Matcher(automaton, masks), masks


def is_elsewhere(matcher: Any, twin: Any) -> bool:
    """Whether accept or rollback has led a matcher astray: task 21.6 is about that."""
    return fill(matcher) != fill(twin) or matcher.is_complete != twin.is_complete


@task("21.7")
def test_what_is_certain_changes_with_the_output(part: Any) -> None:
    """One matcher that goes on and back says each time what is certain from there on."""
    tokens = [b"", b"a", b"b", b"c"]
    matcher, masks = forced_matcher(part, b"abcab", tokens)
    twin = reference.Matcher(reference.ByteAutomaton(text(b"abcab")), masks)
    calls: tuple[tuple[str, int], ...] = (
        ("forced", 1), ("forced", 9), ("forced", 2), ("accept", 1), ("forced", 9), ("accept", 2),
        ("accept", 3), ("forced", 9), ("rollback", 2), ("forced", 9), ("rollback", 1), ("forced", 9),
        *[("accept", token) for token in (1, 2, 3, 1, 2)], ("forced", 9), ("accept", EOS), ("forced", 9),
    )  # fmt: skip
    has_moved = False
    for name, argument in calls:
        has_moved |= name != "forced"
        note(f"matcher.{name}({argument})")
        got, right = getattr(matcher, name)(argument), getattr(twin, name)(argument)
        if is_elsewhere(matcher, twin):
            return
        if name == "forced":
            expect_equal(got, right, f"forced({argument})", why=NOW if has_moved else MORE)


@task("21.7")
def test_what_is_certain_behind_a_choice(part: Any) -> None:
    """Where the output took one of two ways, the certain bytes are those of that way."""
    automaton = reference.ByteAutomaton(choice([text(b"axx"), text(b"byyy")]))
    tokens = [b"", b"a", b"b", b"x", b"y"]
    masks = reference.TokenMasks(automaton, reference.TokenTrie(tokens), [EOS])
    matcher, twin = part.Matcher(automaton, masks), reference.Matcher(automaton, masks)
    note("matcher = Matcher of axx|byyy")
    for token in (1, 2, 1):
        note(f"matcher.accept({token}), matcher.forced(9), matcher.rollback(1)")
        matcher.accept(token)
        twin.accept(token)
        if is_elsewhere(matcher, twin):
            return
        what = f"the forced tokens behind {tokens[token].decode()} of axx|byyy"
        expect_equal(matcher.forced(9), twin.forced(9), what, why=NOW)
        matcher.rollback(1)
        twin.rollback(1)


@task("21.7")
def test_forced_asks_for_few_masks(part: Any) -> None:
    """forced(most) asks for a mask for each of `most` tokens, however many bytes are certain."""
    data = b"abcdefgh" * 8
    tokens = [b"", *(bytes([byte]) for byte in b"abcdefgh")]
    for most in (1, 3):
        start_script()
        matcher, masks = forced_matcher(part, data, tokens)
        note(f"matcher.forced({most})")
        matcher.forced(most)
        problem = f"forced({most}) of {len(data)} certain bytes works out {masks.walks} masks"
        expect(masks.walks <= most + 1, problem, why=FEW_MASKS)
