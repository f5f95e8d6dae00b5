"""Task 21.1: numbers of many digits, constants to the letter, and how many places a string opens."""

import json
from itertools import count
from typing import Any

from grader.kit import Mismatch, expect, expect_equal, note, start_script, task
from grader.kit.memory import expect_keeps_nothing
from grader.suites.structured_output.language import accepts, expect_refuses, expect_takes
from grader.suites.structured_output.test_values import DIGITS, EXACT
from yaie.core.errors import UnsupportedSchemaError
from yaie.core.grammar import Choice
from yaie.engine.input.grammars.grammar_size import size_of

OPEN = (
    "The engine follows up to 256 places at once, 20 strings in an anyOf among them, and leaves the "
    "rest to llguidance. One set of bytes is one place: letters that go on alike are one OneOf, and "
    "what may come again is one Repeat, not a part for each time."
)
MOST_PLACES = 256


@task("21.1")
def test_numbers_of_many_digits(part: Any) -> None:
    """A number has any number of digits, in each of its parts; a string any number of characters."""
    for text in (
        "1" * 60,
        "-" + "9" * 60,
        "0." + "3" * 60,
        "1e" + "0" * 30 + "7",
        "1E-" + "12" * 20,
    ):
        expect_takes(part.number(), text, "number()", DIGITS)
    expect_takes(part.integer(), "-" + "9" * 60, "integer()", DIGITS)
    is_taken = accepts(part.string(), '"' + "a" * 3000 + '"')
    expect(is_taken, "string() refuses 3,000 letters a in quotes", why="None is no limit.")


@task("21.1")
def test_a_number_is_written_as_json_dumps_writes_it(part: Any) -> None:
    """A constant number is taken in no other notation than that of json.dumps."""
    values: tuple[Any, ...] = (2.0, -0.0, 0.0, 1e16, 100.0, 2**70, -(10**30), 1e-7, 123456789.5)
    for value in values:
        right = json.dumps(value)
        grammar = part.constant(value)
        expect_takes(grammar, right, f"constant({value!r})", EXACT)
        others = {f"{value:.0f}", f"{value:.1f}", f"{value:e}", str(abs(value)), f"{value:g}"}
        for other in sorted(others - {right}):
            expect_refuses(grammar, other, f"constant({value!r})", EXACT)


@task("21.1")
def test_the_keyword_of_a_constant_is_const(part: Any) -> None:
    """What JSON cannot write is refused with the keyword "const"."""
    values: tuple[Any, ...] = (
        float("nan"),
        -float("inf"),
        "\ud800",
        [1, {"a": "\udfff"}],
        {"\udfff": 1},
    )
    for value in values:
        start_script()
        note(f"constant({value!r})")
        try:
            part.constant(value)
        except UnsupportedSchemaError as error:
            expect_equal(error.keyword, "const", "the keyword of the error")
        else:
            raise Mismatch(f"constant({value!r}) passes silently", "UnsupportedSchemaError")


@task("21.1")
def test_few_places_are_open_in_a_string(part: Any) -> None:
    """Five strings that are open at once have no more places than the engine follows."""
    for least, most in ((0, None), (0, 64), (1, 3), (2, 64)):
        start_script()
        note(f"Choice of five times string({least}, {most})")
        size = size_of(Choice(tuple(part.string(least, most) for _ in range(5))))
        what = f"five times string({least}, {most}) have {size.places} places open at once"
        expect(size.places <= MOST_PLACES, what, why=OPEN)


@task("21.1")
def test_new_constants_leave_nothing_behind(part: Any) -> None:
    """Another constant in each call: none of them is kept."""
    numbers = count()

    def call() -> None:
        part.constant(f"{next(numbers):09}" * 2)
        part.constant([next(numbers) + 10**9, None])

    note("# constant, each time of a text and of a list that are new")
    expect_keeps_nothing(call, "constant of new values")
