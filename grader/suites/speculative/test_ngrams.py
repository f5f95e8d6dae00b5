"""Task 18.1: an index of n-grams that grows with the text."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from grader.kit import examples, expect, expect_equal, note, task
from grader.suites.speculative.texts import Text
from solutions.speculative import naive

LATEST = "Of several places the latest counts: what was said last is most like what comes next."
ITSELF = (
    "The n-gram that the text ends in stands at its end too. That is no earlier occurrence: nothing "
    "follows it yet. Take an n-gram in when the token behind it is there."
)
LONGER = "Try the longest n-gram first: the more tokens agree, the likelier is what followed."
SHORTER = "Where the longest n-gram has not stood before, the next shorter one may have."
GROWS = "A call takes in what is new since the last one, every token of it."
PIECES = "A call takes in at most `most` tokens, and tells whether that was all."
COST = "Look n-grams up in a dictionary. What was read once is not read again."


def read_all(index: Any, text: list[int], most: int = 1000) -> None:
    for _ in range(len(text) // most + 2):
        if index.read(text, most):
            return
    expect(False, f"read never says that all of {len(text)} tokens is taken in", why=PIECES)


def check(index: Any, text: list[int], longest: int, shortest: int, why: str = "") -> None:
    wanted = naive.scanned(text, longest, shortest)
    expect_equal(index.place(text), wanted, f"place({text})", why=why)


@task("18.1")
def test_latest_place_of_the_longest(part: Any) -> None:
    """The index finds what a scan of the text finds: the latest earlier place of the longest n-gram."""
    for text, why in (
        ([1, 2, 3, 9, 1, 2, 4, 9, 1, 2], LATEST),
        ([5, 5, 5], ITSELF),
        ([1, 2, 3], ITSELF),
        ([7, 1, 2, 3, 8, 2, 3, 9, 1, 2, 3], LONGER),
        ([1, 2, 3, 4, 5, 9, 3, 4], SHORTER),
        ([4, 1, 2, 9, 8, 1, 2], SHORTER),
        ([1, 2, 1, 2], SHORTER),
        ([3, 1, 2, 3, 1, 2], LONGER),
        ([6], ""),
        ([6, 6], ""),
        ([], ""),
    ):
        if not text:
            continue
        index = part.NgramIndex(4, 2)
        note("index = NgramIndex(4, 2)")
        read_all(index, text)
        note(f"index.read({text}, 1000)")
        check(index, text, 4, 2, why)


@task("18.1")
@examples(150)
@given(
    text=st.lists(st.integers(0, 2), min_size=1, max_size=24),
    growth=st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=4), max_size=6),
    longest=st.integers(1, 4),
    shortest=st.integers(1, 3),
)
def test_any_text(
    part: Any, text: list[int], growth: list[list[int]], longest: int, shortest: int
) -> None:
    """Whatever the text, and however it grows, the place is the one that a scan finds."""
    shortest = min(shortest, longest)
    index = part.NgramIndex(longest, shortest)
    note(f"index = NgramIndex({longest}, {shortest})")
    text = [*text]
    for more in ([], *growth):
        text += more
        note(f"index.read({text}, 1000)")
        read_all(index, text)
        check(index, text, longest, shortest, GROWS)


@task("18.1")
def test_reads_in_pieces(part: Any) -> None:
    """A call of read takes in at most `most` tokens; the last one says that all is taken in."""
    text = [1, 2, 3, 4, 5, 6, 7, 8, 1, 2]
    index = part.NgramIndex(3, 2)
    told = [index.read(text, 4) for _ in range(3)]
    expect_equal(told, [False, False, True], "read(ten tokens, 4), three times", why=PIECES)
    expect_equal(index.place(text), 2, f"place({text})", why=GROWS)
    index = part.NgramIndex(3, 2)
    told = [index.read(text, 3) for _ in range(4)]
    expect_equal(told, [False, False, True, True], "read(ten tokens, 3), four times", why=PIECES)
    index = part.NgramIndex(3, 2)
    index.read(text, 2)
    tail = [1, 2, 9, 9, 1, 2]
    index = part.NgramIndex(3, 2)
    index.read(tail, 1)
    expect_equal(index.place(tail), None, "place when one token was taken in", why=PIECES)
    expect_equal(index.read(tail, 4), True, "read of all but the last token", why=PIECES)
    expect_equal(index.place(tail), 2, "place when all was taken in", why=PIECES)


@task("18.1")
def test_long_texts_cost_no_more(part: Any) -> None:
    """A new token, and a look for a place, cost the same in a text of 50 tokens and of 5,000."""
    text = Text([index * index % 97 for index in range(5000)])
    index = part.NgramIndex(4, 2)
    read_all(index, text)
    text.append(7)
    text.seen = 0
    index.read(text, 100)
    expect(text.seen <= 60, f"read looked at {text.seen} tokens to take in one", why=COST)
    text.seen = 0
    index.place(text)
    expect(text.seen <= 60, f"place looked at {text.seen} tokens of the text", why=COST)
