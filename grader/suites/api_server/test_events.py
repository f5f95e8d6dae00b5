"""Task 8.4: one event."""

from types import ModuleType
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from grader.kit import examples, expect, expect_equal, expect_raises, note, task
from grader.kit.api import Wire
from grader.kit.waiting import run
from grader.suites.api_server.reading import LINES, data_of

TEXT = st.text('a\n\r"\\ \x00\x85é\u2028\ud83d🙂', max_size=6)
JSON_DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@task("8.4")
def test_an_event_is_one_line_and_an_empty_one(part: ModuleType) -> None:
    """An event is "data: ", compact JSON on one line, and an empty line."""
    got = part.event({"a": [1, None], "b": "x\ny"})
    expect(isinstance(got, bytes), f"event gives a {type(got).__name__}, not bytes")
    expect(got.startswith(b"data: "), f"the event {got!r} does not begin with `data: `")
    expect(got.endswith(b"\n\n"), f"the event {got!r} does not end with an empty line", why=LINES)
    expect_equal(got.count(b"\n"), 2, f"how many line ends the event {got!r} has", why=LINES)
    why = "Nothing that a client does not need: separators without spaces."
    expect_equal(got, b'data: {"a":[1,null],"b":"x\\ny"}\n\n', "the event", why=why)
    expect_equal(part.DONE, b"data: [DONE]\n\n", "DONE")


@task("8.4")
def test_an_event_is_ascii(part: ModuleType) -> None:
    """Characters beyond ASCII are escaped: no U+2028, no half of a surrogate pair, in any event."""
    for char in ("\u2028", "\u2029", "\x85", "\x0c", "é", "🙂", "\ud800"):
        note(f"event({{'text': {char!r}}})")
        got = part.event({"text": char})
        expect(got.isascii(), f"the event of a text with {char!r} is not ASCII: {got!r}", why=LINES)
        expect_equal(
            len(got.decode().splitlines()),
            2,
            "lines of the event, the empty one counted",
            why=LINES,
        )
        expect_equal(data_of(got[:-2]), {"text": char}, "what a client reads")


@task("8.4")
def test_an_event_holds_no_nan(part: ModuleType) -> None:
    """NaN and infinity are no JSON: an event with one raises ValueError."""
    for number in (float("nan"), float("inf"), -float("inf")):
        why = "Python writes NaN and reads it again; JavaScript's JSON.parse fails on it, in mid-answer."
        with expect_raises(ValueError, f"an event that holds {number}", why=why):
            part.event({"x": number})


@task("8.4")
def test_events_of_one_output_go_together(part: ModuleType) -> None:
    """send_events sends all its events in one message that says more will come; none for none."""
    wire = Wire()
    run(part.sending.send_events(wire.send, iter([{"a": 1}, {"b": 2}])))
    body = b'data: {"a":1}\n\ndata: {"b":2}\n\n'
    expected = [{"type": "http.response.body", "body": body, "more_body": True}]
    expect_equal(wire.messages, expected, "the messages of two events", why="One packet, not two.")
    wire = Wire()
    run(part.sending.send_events(wire.send, iter([])))
    expect_equal(wire.messages, [], "the messages of no event", why="Nothing to say is no packet.")


@task("8.4")
@examples(80)
@given(data=st.dictionaries(TEXT, JSON_DATA, max_size=3))
def test_any_data_comes_back(part: ModuleType, data: dict[str, Any]) -> None:
    """Whatever an event holds, a client that reads line by line gets it back."""
    note(f"event({data!r})")
    got = part.event(data)
    expect_equal(data_of(got.removesuffix(b"\n\n")), data, "what a client reads")
