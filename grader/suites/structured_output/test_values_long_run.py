"""Task 21.1 beyond one call and short values: nothing that is left behind, and no limit on the parts."""

import json
from copy import deepcopy
from typing import Any

from grader.kit import expect, task
from grader.kit.apart import deep_calls, expect_unchanged
from grader.kit.memory import expect_keeps_nothing
from grader.suites.structured_output.language import accepts

MANY = 1050
"""Parts of a value: no contract has a limit."""


@task("21.1")
def test_values_of_many_calls(part: Any) -> None:
    """A grammar is made for its caller, and nothing of the call is left behind."""
    expect_keeps_nothing(lambda: part.string(1, 3), "string")
    # A call without arguments leaves little behind: four of them leave enough to be seen.
    expect_keeps_nothing(lambda: [part.integer() for _ in range(4)], "four times integer")
    expect_keeps_nothing(lambda: [part.number() for _ in range(4)], "four times number")
    value = [1, {"a": None}]
    expect_keeps_nothing(lambda: part.constant(value), "constant")


@task("21.1")
def test_a_constant_is_left_as_it_is(part: Any) -> None:
    """The value belongs to the schema, which other requests use."""
    value = {"b": [3, 1, {"a": None}], "a": []}
    given = deepcopy(value)
    part.constant(given)
    expect_unchanged(given, value, "the value that constant was given")
    expect_unchanged(list(given), list(value), "the order of the value that constant was given")


@task("21.1")
def test_constants_of_a_thousand_parts(part: Any) -> None:
    """A constant has all of its items, pairs and characters."""
    texts: dict[str, Any] = {
        f"a list of {MANY} items": [0] * MANY,
        f"an object of {MANY} pairs": {str(number): 0 for number in range(MANY)},
        f"a text of {MANY} characters": "ab" * (MANY // 2),
    }
    for what, value in texts.items():
        text = json.dumps(value, ensure_ascii=False)
        with deep_calls():
            grammar = part.constant(value)
            takes = accepts(grammar, text)
        expect(takes, f"constant(value) refuses what json.dumps writes of {what}", why=(
            "Nothing of a value is left out, however long it is."
        ))  # fmt: skip
