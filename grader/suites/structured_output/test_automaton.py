"""Task 21.3: the automaton."""

from itertools import product
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from grader.kit import count_calls, examples, expect, expect_equal, note, start_script, task
from grader.kit.apart import Number
from grader.suites.structured_output.grammar_kinds import why_states
from grader.suites.structured_output.language import pattern
from solutions.structured_output import naive
from yaie.core.contracts.constraining import DEAD
from yaie.core.grammar import Choice, Concat, Grammar, OneOf, Repeat, choice, concat, optional, text

A, B = text(b"a"), text(b"b")
GRAMMARS: dict[str, Grammar] = {
    "ab": text(b"ab"),
    "a?b": concat(optional(A), B),
    "a*": Repeat(A, 0, None),
    "a+b": concat(Repeat(A, 1, None), B),
    "a{2,3}": Repeat(A, 2, 3),
    "a{2,}": Repeat(A, 2, None),
    "a{0,0}": Repeat(A, 0, 0),
    "(ab|a){1,2}": Repeat(choice([text(b"ab"), A]), 1, 2),
    "(a|b)*abb": concat(Repeat(choice([A, B]), 0, None), text(b"abb")),
    "(a?){2}b": concat(Repeat(optional(A), 2, 2), B),
    "(a?)*b": concat(Repeat(optional(A), 0, None), B),
    "((a*)*)*": Repeat(Repeat(Repeat(A, 0, None), 0, None), 0, None),
    "(a|ab)(b|)": concat(choice([A, text(b"ab")]), choice([B, Concat(())])),
    "[ab]a": concat(OneOf(frozenset(b"ab")), A),
    "(a{0,1}b){2,2}a": concat(Repeat(concat(optional(A), B), 2, 2), A),
    "nothing at all": Concat(()),
}
ALIVE = (
    "A state is all places that the bytes so far may have led to, on any way through the grammar. It is "
    "DEAD if there is none."
)
GOES_ON = "The document may end here, even if other ways go on."
LEFT_EMPTY = "A way has come to its end too where all that is left of it may be empty."
LAZY = (
    "Make a state when a step first leads to it. A grammar may have millions, of which an output meets "
    "a few hundred; a repetition is taken apart one item at a time."
)
INDEX = "DEAD is -1: as an index it would be the last of a list."
EQUAL = (
    "DEAD itself is recognised, and an equal number is not: `is` asks whether two are one object. "
    "States that come out of an array are objects of their own. Compare with `==`."
)
ONCE = (
    "Ways that meet are one from there on: the same places make the same state, whatever led there."
)


def run(automaton: Any, data: bytes) -> int:
    state: int = automaton.start
    for byte in data:
        state = automaton.step(state, byte)
    return state


def out_of_dead(automaton: Any, data: bytes) -> str:
    """What is the matter, if a step on the way has led out of DEAD."""
    state = automaton.start
    for at, byte in enumerate(data):
        behind = automaton.step(state, byte)
        if state == DEAD and behind != DEAD:
            told = f"Behind {data[:at].decode()!r} the state is DEAD, as it must be."
            return f"{told} step(DEAD, {byte}) is {behind}, and must be DEAD. {INDEX}"
        state = behind
    return ""


def check_on(part: Any, grammar: Grammar, name: str, data: bytes, automaton: Any = None) -> None:
    """The state behind these bytes is what the oracle says of them."""
    automaton = automaton or part.ByteAutomaton(grammar)
    state = run(automaton, data)
    alive, final = naive.can_begin(grammar, data), naive.is_document(grammar, data)
    told = f"{data.decode()!r} of {name}"
    if (state != DEAD) != alive:
        is_so, begins = ("DEAD", "a document") if alive else ("not DEAD", "no document")
        why = out_of_dead(automaton, data)
        why = why or why_states(part, list(GRAMMARS.values())) or ALIVE
        expect(False, f"behind {told} the state is {is_so}, but {begins} begins so", why=why)
    if automaton.is_final(state) != final:
        says = "is a whole document" if final else "is no whole document"
        why = why_states(part, list(GRAMMARS.values()))
        if final and not why:
            goes_on = any(naive.can_begin(grammar, data + bytes([byte])) for byte in b"abc")
            why = GOES_ON if goes_on else LEFT_EMPTY
        expect(False, f"{told} {says}: is_final says otherwise", why=why)


@task("21.3")
def test_languages(part: Any) -> None:
    """The automaton takes the texts of its grammar, and is DEAD where none begins as the bytes do."""
    for name, grammar in GRAMMARS.items():
        start_script()
        note(f"automaton = ByteAutomaton({name})")
        automaton = part.ByteAutomaton(grammar)
        for length in range(5):
            for data in product(b"ab", repeat=length):
                check_on(part, grammar, name, bytes(data), automaton)


def grammars() -> st.SearchStrategy[Grammar]:
    ones = st.sets(st.sampled_from(b"abc"), min_size=1).map(lambda values: OneOf(frozenset(values)))

    def repeated(item: Grammar, least: int, more: int | None) -> Grammar:
        return Repeat(item, least, None if more is None else least + more)

    def larger(inner: st.SearchStrategy[Grammar]) -> st.SearchStrategy[Grammar]:
        some = st.lists(inner, max_size=3).map(tuple)
        return st.one_of(
            some.map(Concat),
            some.filter(len).map(Choice),
            st.builds(repeated, inner, st.integers(0, 2), st.none() | st.integers(0, 2)),
        )

    return st.recursive(ones, larger, max_leaves=6)


@task("21.3")
@examples(80)
@given(grammar=grammars(), texts=st.lists(st.text("abc", max_size=7).map(str.encode), max_size=6))
def test_any_grammar(part: Any, grammar: Grammar, texts: list[bytes]) -> None:
    """Whatever the grammar, the automaton says of every text what trying every way says."""
    name = pattern(grammar)
    note(f"automaton = ByteAutomaton({name})")
    automaton = part.ByteAutomaton(grammar)
    for data in texts:
        for end in range(len(data) + 1):
            check_on(part, grammar, name, data[:end], automaton)


@task("21.3")
def test_every_byte_there_is(part: Any) -> None:
    """Bytes are numbers from 0 to 255, and a set may hold any of them."""
    grammar = concat(OneOf(frozenset((0, 128, 255))), OneOf(frozenset(range(256))))
    automaton = part.ByteAutomaton(grammar)
    for byte in range(256):
        state = automaton.step(automaton.start, byte)
        expect_equal(
            state != DEAD, byte in (0, 128, 255), f"whether byte {byte} leads on", why=ALIVE
        )
        if state != DEAD:
            expect(
                automaton.step(state, 255 - byte) != DEAD, "the second byte may be any", why=ALIVE
            )


@task("21.3")
def test_live_bytes(part: Any) -> None:
    """`live_bytes` are those whose step is not DEAD, ascending."""
    for name, grammar in GRAMMARS.items():
        automaton = part.ByteAutomaton(grammar)
        for length in range(4):
            for data in product(b"ab", repeat=length):
                state = run(automaton, bytes(data))
                live = bytes(b for b in range(256) if automaton.step(state, b) != DEAD)
                what = f"live_bytes behind {bytes(data).decode()!r} of {name}"
                expect_equal(automaton.live_bytes(state), live, what)
    both = part.ByteAutomaton(choice([text(b"z"), text(b"a"), text(b"zz"), text(b"m")]))
    expect_equal(both.live_bytes(both.start), b"amz", "live_bytes at the start of z|a|zz|m")


@task("21.3")
def test_nothing_leads_out_of_dead(part: Any) -> None:
    """From DEAD every byte leads to DEAD, which is not final and has no live bytes."""
    automaton = part.ByteAutomaton(GRAMMARS["a*"])
    for dead, name, why in ((DEAD, "DEAD", INDEX), (Number(DEAD), "a number equal to DEAD", EQUAL)):
        expect_equal(automaton.step(dead, ord("a")), DEAD, f"step({name}, 97)", why=why)
        expect_equal(automaton.is_final(dead), False, f"is_final({name})", why=why)
        expect_equal(automaton.live_bytes(dead), b"", f"live_bytes({name})", why=why)


@task("21.3")
def test_the_same_bytes_lead_to_the_same_state(part: Any) -> None:
    """A state is found again, and ways that leave the same to come lead to the same one."""
    automaton = part.ByteAutomaton(GRAMMARS["(a|b)*abb"])
    first = {
        bytes(data): run(automaton, bytes(data))
        for n in range(7)
        for data in product(b"ab", repeat=n)
    }
    again = {data: run(automaton, data) for data in first}
    expect_equal(again, first, "the states of all texts of up to 6 letters, asked again", why=ONCE)
    expect(
        automaton.num_states <= 10,
        f"(a|b)*abb has {automaton.num_states} states for the texts of up to 6 letters, and needs 4",
        why=ONCE,
    )
    string = part.ByteAutomaton(
        concat(Repeat(OneOf(frozenset(range(97, 123))), 0, None), text(b"!"))
    )
    behind = {string.step(string.start, byte) for byte in range(97, 123)}
    expect_equal(len(behind), 1, "states behind one letter of [a-z]*!", why=ONCE)


@task("21.3")
def test_states_are_made_when_they_are_needed(part: Any) -> None:
    """A grammar costs what is walked of it, however much it could repeat."""
    huge = Repeat(concat(Repeat(A, 1, 10**6), B), 0, 10**6)

    def build_and_walk() -> None:
        automaton = part.ByteAutomaton(huge)
        run(automaton, b"aaabab")

    calls = count_calls(build_and_walk)
    expect(
        calls <= 3000, f"six bytes of (a{{1,1000000}}b){{0,1000000}} take {calls} calls", why=LAZY
    )


@task("21.3")
def test_a_step_is_found_again(part: Any) -> None:
    """The second time a step is a look-up, however many ways there are."""
    words = choice([text(bytes([97 + i, 97 + j])) for i in range(20) for j in range(20)])
    automaton = part.ByteAutomaton(words)
    automaton.step(automaton.start, ord("c"))
    calls = count_calls(lambda: automaton.step(automaton.start, ord("c")))
    expect(calls <= 30, f"a step that was made before takes {calls} calls, where 30 do", why=(
        "Masks and matchers make the same steps again and again: keep what a byte leads to, by state."
    ))  # fmt: skip


@task("21.3")
def test_what_is_shared_is_walked_once(part: Any) -> None:
    """A node that stands in two places with the same behind it is one place, not two."""

    def work(count: int) -> int:
        def build() -> None:
            grammar: Grammar = text(b"!")
            for _ in range(count):
                grammar = Choice((concat(grammar), concat(Concat(()), grammar)))
            part.ByteAutomaton(grammar)

        return count_calls(build)

    few, many = work(6), work(12)
    expect(
        many <= 4 * few,
        f"a choice of two ways to the same node, 6 deep, takes {few} calls, 12 deep {many}",
        why="The closure meets a place twice: it is walked the first time only.",
    )
