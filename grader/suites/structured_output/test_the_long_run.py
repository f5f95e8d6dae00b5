"""Tasks 21.2 to 21.7 beyond one call and a small vocabulary: results that stay, nothing left behind,
long grammars and tokens, large ids. Those of task 21.1 are in `test_values_long_run.py`."""

from collections.abc import Callable
from itertools import cycle
from typing import Any

from grader.kit import expect, expect_equal, note, start_script, task, watch
from grader.kit.apart import NO_BITS_LOST, deep_calls
from grader.kit.memory import expect_keeps_nothing
from grader.kit.standing import expect_results_stand
from grader.suites.structured_output.test_automaton import GRAMMARS
from grader.suites.structured_output.test_masks import lent
from grader.suites.structured_output.test_schemas import record
from grader.suites.structured_output.vocabulary import (
    EOS,
    PAIR,
    TOKENS,
    NumberedAutomaton,
    WideMasks,
    state_behind,
)
from solutions import structured_output as reference
from yaie.core.grammar import Grammar, concat, text

MANY = 1050
"""Parts of a grammar, bytes of a token: no contract has a limit."""
NO_LIMIT = (
    "No limit is set on how many there may be: what is behind the first thousand counts as well."
)
NOT_FOLLOWED = (
    "All bytes of a token lead on, or it may not come. Behind a byte that does not, the state equals "
    "DEAD. `is` asks whether it is the same object. Compare with `==`."
)


@task("21.2")
def test_an_object_of_many_properties(part: Any) -> None:
    """However many properties an object has, each of them may come."""
    names = "".join(chr(0x4E00 + i) for i in range(MANY))
    note(f"# an object of {MANY} properties, which may all be left out")
    with deep_calls():
        automaton = reference.ByteAutomaton(part.schema_grammar(record("", names)))
        for chosen in ((0,), (MANY - 1,), (0, MANY - 1)):
            members = ",".join(f'"{names[i]}":{i}' for i in chosen)
            state = state_behind(automaton, f"{{{members}}}".encode())
            told = " and ".join(f"number {i}" for i in chosen)
            problem = f"the grammar refuses an object with property {told}"
            expect(automaton.is_final(state), problem, why=NO_LIMIT)


@task("21.2")
def test_schemas_leave_nothing_behind(part: Any) -> None:
    """A grammar is made for its caller; nothing of the schema is left behind."""
    schema = {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "array", "items": {"$ref": "#/$defs/a"}}],
              "$defs": {"a": record("a")}}  # fmt: skip
    expect_keeps_nothing(lambda: part.schema_grammar(schema), "schema_grammar")


@task("21.3")
def test_questions_leave_nothing_behind(part: Any) -> None:
    """What was asked before is looked up: the automaton does not grow by it."""
    automaton = part.ByteAutomaton(GRAMMARS["(a|b)*abb"])
    state = automaton.step(automaton.start, ord("a"))
    for name, ask in (
        ("step", lambda: automaton.step(state, ord("b"))),
        ("live_bytes", lambda: automaton.live_bytes(state)),
        ("is_final", lambda: automaton.is_final(state)),
    ):
        expect_keeps_nothing(ask, f"{name}, asked again,")


@task("21.3")
def test_a_grammar_of_many_parts(part: Any) -> None:
    """A grammar of many parts in a row is followed through all of them."""
    note(f"# a grammar of {MANY} bytes in a row")
    with deep_calls():
        automaton = part.ByteAutomaton(text(b"a" * MANY))
        state, final = automaton.start, []
        for count in range(MANY + 1):
            if automaton.is_final(state):
                final.append(count)
            state = automaton.step(state, ord("a"))
    expect_equal(final, [MANY], "behind how many bytes a document may end", why=NO_LIMIT)


def states_of_pair() -> tuple[reference.ByteAutomaton, list[int]]:
    """An automaton, and four of its states."""
    automaton = reference.ByteAutomaton(PAIR)
    return automaton, [state_behind(automaton, data) for data in (b"", b"{", b'{"', b'{"ab":')]


def check_rows(ask: Callable[[int], Any], states: list[int], name: str) -> None:
    """Rows of several states stay what they are, and leave nothing behind."""
    expect_results_stand([lambda state=state: ask(state) for state in states], name)  # type: ignore[misc]
    expect_keeps_nothing(lambda: ask(states[1]), f"{name}, asked again,")


@task("21.4")
def test_allowed_tokens_of_many_calls(part: Any) -> None:
    """What is allowed in one state is no array that the next call fills; nothing is left behind."""
    automaton, states = states_of_pair()
    masks = part.TokenMasks(automaton, reference.TokenTrie(TOKENS), [EOS])
    check_rows(masks.allowed, states, "allowed")


@task("21.5")
def test_masks_of_many_calls(part: Any) -> None:
    """A mask is no array that the next call fills, and no more than `most` of them are kept."""
    automaton, states = states_of_pair()
    check_rows(lent(part, automaton).mask, states, "mask")
    start_script()
    masks = lent(part, automaton, most=2)
    asked = cycle(states)
    expect_results_stand([lambda state=state: masks.mask(state) for state in states], "mask")  # type: ignore[misc]
    expect_keeps_nothing(
        lambda: masks.mask(next(asked)), "mask of four states in turn, with most=2,"
    )


def wide_matcher(part: Any, grammar: Grammar, texts: dict[int, bytes]) -> Any:
    """A matcher over 16,777,232 tokens."""
    automaton = NumberedAutomaton(grammar)
    shown = {
        token: data if len(data) < 20 else f"{len(data)} bytes" for token, data in texts.items()
    }
    note(f"# {WideMasks.SIZE} tokens, those with text: {shown}; the end is {WideMasks.END}")
    return watch(part.Matcher(automaton, WideMasks(automaton, texts)), "matcher")


@task("21.6")
def test_tokens_of_a_wide_vocabulary(part: Any) -> None:
    """A token, and the end of the sequence, is known by its whole id."""
    token, end = WideMasks.TOKEN, WideMasks.END
    matcher = wide_matcher(part, text(b"abc"), {token: b"ab", 1: b"c"})
    expect_equal(matcher.accept(token), True, f"accept({token}), which is ab", why=NO_BITS_LOST)
    expect_equal(matcher.accept(1), True, "accept(1), which is c", why=NO_BITS_LOST)
    expect_equal(matcher.is_complete, True, "is_complete behind abc", why=NO_BITS_LOST)
    expect_equal(matcher.accept(end), True, f"accept({end}), the end", why=NO_BITS_LOST)


@task("21.6")
def test_a_state_that_equals_dead(part: Any) -> None:
    """A token that leads to DEAD is refused, whichever object the automaton has for it."""
    matcher = wide_matcher(part, text(b"abc"), {1: b"ax", 2: b"a"})
    expect_equal(matcher.accept(1), False, "accept(1), which is ax", why=NOT_FOLLOWED)
    expect_equal(matcher.accept(2), True, "accept(2), which is a")


@task("21.6")
def test_a_token_of_many_bytes(part: Any) -> None:
    """All bytes of a token are followed, however many it has."""
    matcher = wide_matcher(part, text(b"a" * MANY), {1: b"a" * MANY})
    expect_equal(matcher.accept(1), True, f"accept(1), which has {MANY} bytes")
    expect_equal(matcher.is_complete, True, "is_complete behind all bytes", why=NO_LIMIT)


@task("21.6")
def test_a_matcher_of_many_calls(part: Any) -> None:
    """What was taken back is gone, and questions leave nothing behind."""
    automaton = reference.ByteAutomaton(PAIR)
    masks = reference.TokenMasks(automaton, reference.TokenTrie(TOKENS), [EOS])
    matcher, token = part.Matcher(automaton, masks), TOKENS.index(b'{"')

    def there_and_back() -> None:
        matcher.accept(token)
        matcher.rollback(1)

    expect_keeps_nothing(there_and_back, "accept and rollback(1)")
    expect_keeps_nothing(lambda: matcher.is_complete, "is_complete")
    expect_keeps_nothing(lambda: matcher.accept(1), "accept of a token that may not come")


@task("21.7")
def test_forced_tokens_of_a_wide_vocabulary(part: Any) -> None:
    """The longest token is found by its text, whatever its id."""
    token = WideMasks.TOKEN
    matcher = wide_matcher(part, text(b"abab"), {1: b"a", 2: b"b", token: b"ab"})
    expect_equal(matcher.forced(9), [token, token], "the forced tokens of abab", why=NO_BITS_LOST)


@task("21.7")
def test_forced_tokens_of_many_bytes(part: Any) -> None:
    """Behind a long token the next one is looked for where it ends."""
    size = 1010  # of the 1,024 certain bytes that the engine goes up to
    grammar = concat(text(b"a" * size), text(b"b"))
    matcher = wide_matcher(part, grammar, {1: b"a" * size, 2: b"b", 3: b"a"})
    expect_equal(matcher.forced(9), [1, 2], f"the forced tokens of {size} a and a b", why=NO_LIMIT)


@task("21.7")
def test_forced_tokens_of_many_calls(part: Any) -> None:
    """The forced tokens are a list for each call, and nothing is left behind."""
    tokens = [b"", b"a", b"b", b"ab"]
    automaton = reference.ByteAutomaton(text(b"abab"))
    masks = reference.TokenMasks(automaton, reference.TokenTrie(tokens), [EOS])
    matcher = part.Matcher(automaton, masks)
    expect_results_stand([lambda most=most: matcher.forced(most) for most in (1, 2, 0)], "forced")  # type: ignore[misc]
    expect_keeps_nothing(lambda: matcher.forced(2), "forced")
