"""Task 21.3: how states are numbered, and which steps are found again."""

from itertools import product
from typing import Any

from grader.kit import count_calls, expect, expect_equal, note, start_script, task
from grader.suites.structured_output.test_automaton import GRAMMARS
from yaie.core.contracts.constraining import DEAD
from yaie.core.grammar import Repeat, between, choice, concat, text

NUMBERED = (
    "States are numbered from 0 as they are found, and each is made when a step first leads there: a "
    "table of steps has a row for each of `num_states`. `live_bytes` and `is_final` make none, and "
    "DEAD is none."
)
FROM_ZERO = "States are numbered from 0; here they begin with 1."
LOOKED_UP = (
    "Whatever a step has led to is kept: DEAD, which most bytes lead to, and state 0, which is false "
    "where a condition asks for it."
)

BEHIND = (
    "In a string ninety letters lead to the same few places. Keep the state for each set of places "
    "that a byte has led to (`_behind`): its closure is walked the first time only."
)


@task("21.3")
def test_states_are_numbered_from_zero(part: Any) -> None:
    """The states that steps have led to are 0 to num_states - 1, whatever else was asked."""
    for name, grammar in GRAMMARS.items():
        start_script()
        note(f"automaton = ByteAutomaton({name})")
        automaton = part.ByteAutomaton(grammar)
        met = {automaton.start}
        for data in product(b"ab", repeat=3):
            state = automaton.start
            for byte in data:
                automaton.live_bytes(state)
                automaton.is_final(state)
                state = automaton.step(state, byte)
                met.add(state)
        note("# steps along all texts of three letters a and b; live_bytes and is_final on the way")
        found, number = sorted(met - {DEAD}), automaton.num_states
        note(f"# the states that steps have led to: {found}; num_states: {number}")
        expect_equal(
            number, len(found), "num_states, where steps have led to so many", why=NUMBERED
        )
        why = FROM_ZERO if found == list(range(1, number + 1)) else NUMBERED
        expect_equal(found, list(range(number)), "the states that steps have led to", why=why)


@task("21.3")
def test_questions_make_no_states(part: Any) -> None:
    """live_bytes and is_final say what may come without going there."""
    automaton = part.ByteAutomaton(choice([text(bytes([97 + i, 98 + i])) for i in range(20)]))
    for name in ("live_bytes", "is_final"):
        note(f"automaton.{name}(automaton.start)")
        getattr(automaton, name)(automaton.start)
        what = f"num_states after {name} at the start of ab|bc|cd|..., without a step"
        expect_equal(automaton.num_states, 1, what, why=NUMBERED)


@task("21.3")
def test_any_step_is_found_again(part: Any) -> None:
    """The second time a step is a look-up, wherever it leads: to DEAD, or back to the start."""
    words = choice([text(b"c") for _ in range(400)])
    automaton = part.ByteAutomaton(Repeat(words, 0, None))
    for what, byte in (("to DEAD", ord("z")), ("back to the start", ord("c"))):
        behind = automaton.step(automaton.start, byte)
        start_script()
        note("automaton = ByteAutomaton((c|c|c|...)*), with 400 ways to write c")
        note(f"automaton.step(automaton.start, {byte})  # -> {behind}, a second time")
        calls = count_calls(lambda byte=byte: automaton.step(automaton.start, byte))  # type: ignore[misc]
        problem = f"a step that was made before and leads {what} takes {calls} calls, of 400 ways"
        expect(calls <= 30, problem, why=LOOKED_UP)


@task("21.3")
def test_places_that_many_bytes_lead_to_are_walked_once(part: Any) -> None:
    """Another byte that leads to the same places costs no walk through what lies behind them."""
    words = choice([text(bytes([97 + i, 97 + j])) for i in range(20) for j in range(10)])
    automaton = part.ByteAutomaton(concat(between(97, 122), words))
    first = count_calls(lambda: automaton.step(automaton.start, 97))
    others = count_calls(lambda: [automaton.step(automaton.start, byte) for byte in range(98, 123)])
    note("automaton = ByteAutomaton([a-z](aa|ab|...)), with 200 words behind the letter")
    problem = f"the step for a takes {first} calls, those for b to z {others}"
    expect(others <= 4 * first + 1000, f"{problem}: all lead to the same places", why=BEHIND)
