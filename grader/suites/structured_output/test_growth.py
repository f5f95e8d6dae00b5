"""What a token costs does not grow with the output so far; what a schema costs grows as it does."""

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

from grader.kit import task
from grader.kit.growth import expect_growth
from grader.suites.structured_output.vocabulary import EOS, STRING, TOKENS
from solutions import structured_output as reference
from yaie.core.grammar import Repeat, any_of, concat, text

READ = (
    "A schema comes with a request, and its grammar is made before the first token: each property, "
    "item and constant is read once, and put into the grammar once."
)
FOUND = "A step that was made before is found by its state and byte, however much else is known."
OUTPUT = (
    "A matcher makes a step for each byte of one more token. It keeps the state behind each token, so "
    "it never begins again, and taking one back drops one state."
)
LETTERS = concat(text(b'"'), Repeat(any_of(b"abc"), 0, 100_000), text(b'"'))


@task("21.1")
def test_a_constant_costs_its_length(part: ModuleType) -> None:
    """The grammar of a constant costs as much as the constant is long."""
    for what, make in (
        ("constant of a string", lambda n: partial(part.constant, "é" * n)),
        ("constant of a list", lambda n: partial(part.constant, list(range(n)))),
        ("constant of an object", lambda n: partial(part.constant, {f"k{i}": i for i in range(n)})),
    ):
        expect_growth(part, what, "letters or items", make, exponent=1, why=READ)


@task("21.2")
def test_a_schema_costs_its_length(part: ModuleType) -> None:
    """The grammar of a schema costs as much as there are properties, values or ways in it."""

    def record(n: int, required: bool) -> dict[str, Any]:
        names = [f"p{number}" for number in range(n)]
        return {
            "type": "object",
            "properties": {name: {"type": "boolean"} for name in names},
            "required": names if required else [],
            "additionalProperties": False,
        }

    for quantity, schema in (
        ("required properties", lambda n: record(n, True)),
        ("properties that may be left out", lambda n: record(n, False)),
        ("values of an enum", lambda n: {"enum": [f"v{number}" for number in range(n)]}),
        ("schemas of an anyOf", lambda n: {"anyOf": [{"const": number} for number in range(n)]}),
    ):
        expect_growth(
            part, "schema_grammar", quantity,
            lambda n, schema=schema: partial(part.schema_grammar, schema(n)),  # type: ignore[misc]
            size=24, exponent=1, why=READ,
        )  # fmt: skip


@task("21.3")
def test_a_step_is_a_look_up_among_any_number(part: ModuleType) -> None:
    """step, live_bytes and is_final cost the same with 128 states and with 512."""

    def walked(n: int) -> tuple[Any, int]:
        automaton = part.ByteAutomaton(
            concat(*[text(b"ab")] * n)  # as many states as letters
        )
        state = automaton.start
        for letter in b"ab" * n:
            last, state = state, automaton.step(state, letter)
        return automaton, last

    calls: dict[str, Callable[[Any, int], Callable[[], Any]]] = {
        "step that was made before": lambda automaton, last: partial(
            automaton.step, last, ord("b")
        ),
        "num_states": lambda automaton, last: lambda: automaton.num_states,
        "is_final": lambda automaton, last: partial(automaton.is_final, last),
    }
    for what, call in calls.items():
        expect_growth(
            part, what, "pairs of states",
            lambda n, call=call: call(*walked(n)),  # type: ignore[misc]
            why=FOUND,
        )  # fmt: skip


@task("21.5")
def test_a_mask_is_found_again_among_any_number(part: ModuleType) -> None:
    """mask of a state that is kept costs the same with 40 masks kept and with 160."""

    def kept(n: int) -> Callable[[], Any]:
        automaton = reference.ByteAutomaton(concat(*[text(b"ab")] * n))
        masks = part.TokenMasks(automaton, reference.TokenTrie(TOKENS), [EOS], most=4 * n)
        state, states = automaton.start, []
        for letter in b"ab" * n:
            states.append(state)
            masks.mask(state)
            state = automaton.step(state, letter)
        return partial(masks.mask, states[n // 2])

    expect_growth(part, "mask, asked for again", "masks kept", kept, size=20, why=FOUND)


def matcher_behind(part: ModuleType, n: int) -> Any:
    """A matcher that has followed n tokens of a long string."""
    automaton = reference.ByteAutomaton(LETTERS)
    masks = reference.TokenMasks(automaton, reference.TokenTrie(TOKENS), [EOS], most=8 * n)
    matcher = part.Matcher(automaton, masks)
    for token in (TOKENS.index(b'"'), *[TOKENS.index(b"a")] * n):
        matcher.accept(token)
    return matcher


@task("21.6")
def test_a_token_costs_the_same_behind_any_output(part: ModuleType) -> None:
    """accept and is_complete cost the same behind 64 tokens and behind 256."""
    for what, call in (
        ("accept", lambda matcher: partial(matcher.accept, TOKENS.index(b"b"))),
        ("is_complete", lambda matcher: lambda: matcher.is_complete),
    ):
        expect_growth(
            part, what, "tokens before", lambda n, call=call: call(matcher_behind(part, n)), size=64,  # type: ignore[misc]
            why=OUTPUT,
        )  # fmt: skip


@task("21.7")
def test_what_is_certain_costs_its_bytes(part: ModuleType) -> None:
    """forced costs the bytes that are certain, and the same behind any output."""

    def certain(n: int) -> Callable[[], Any]:
        automaton = reference.ByteAutomaton(concat(*[text(b"ab")] * n, STRING))
        masks = reference.TokenMasks(automaton, reference.TokenTrie(TOKENS), [EOS], most=8 * n)
        return partial(part.Matcher(automaton, masks).forced, 10_000)

    expect_growth(part, "forced", "pairs of bytes", certain, size=16, exponent=1, why=OUTPUT)
