"""Task 18.1: an index of n-grams that grows with the text."""

from collections.abc import Sequence
from functools import partial
from types import ModuleType
from typing import Any, overload

from hypothesis import given
from hypothesis import strategies as st

from grader.kit import Fault, examples, expect, expect_equal, start_script, task, watch
from grader.kit.apart import expect_unchanged
from grader.kit.counted import CountedList
from grader.kit.growth import steps_of
from grader.suites.speculative.place_readings import why_place
from solutions.speculative import naive

LAST = (
    "The n-gram that the text ends in must not find itself: nothing follows it yet. The last token is "
    "taken in when the next one is known."
)
BEHIND = "The place is the index *behind* the n-gram, where what followed it begins."
LATEST = "Of several earlier occurrences the latest counts: enter it over the other."
LONGEST = "The longest n-gram that stood before decides: ask for it first."
LENGTHS = "Every length from `shortest` to `longest` is looked up, both included."
PORTION = (
    "`read` takes in as many tokens as there are, and `most` at the most: a long prompt is read over "
    "several steps, and none of its tokens is left out."
)
MOST = "`most` is how many tokens a call may take in; what is left is for the calls after it."
DONE = "True when every token but the last has been taken in, and not before."
SENTENCES = (BEHIND, LAST, LATEST, LONGEST, LENGTHS, PORTION)
STEP = "`most` keeps a step short: a prompt of 100,000 tokens must not hold up other requests."
WHOLE = (
    "A copy of the text, or of all of it but the end, looks at each of its tokens, and `read` is called "
    "in each step. Take from it the few tokens of the n-gram alone."
)
WHOLE_KEYS = (
    "An n-gram is found by all of its tokens, each with all its bits and in its place. Two n-grams that "
    "give the same number, or the same text, are still two."
)
EACH_LENGTH = (
    "Of the n-grams that the text ends in, the longest that stood before decides, wherever it stood: "
    "none of the lengths up to `longest` may be left out."
)
AGAIN = "`place` looks something up. It changes nothing, so it gives the same for the same text."
ONCE = (
    "Each token is taken in once, with a few look-ups. Whoever looks through the text again each time "
    "takes longer with each token."
)


class Counted(Sequence[int]):
    """A text that counts how many of its tokens were looked at."""

    def __init__(self, tokens: list[int]) -> None:
        self.tokens = tokens
        self.looks = 0
        self.longest_slice = 0
        self.last = 0

    def __len__(self) -> int:
        return len(self.tokens)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        found = self.tokens[index]
        self.looks += len(found) if isinstance(found, list) else 1
        self.longest_slice = max(self.longest_slice, len(found) if isinstance(found, list) else 0)
        places = range(1, len(self.tokens) + 1)[index]
        self.last = max(self.last, places if isinstance(places, int) else max(places, default=0))
        return found


def place_in(part: Any, text: list[int], longest: int, shortest: int) -> int | None:
    index = watch(part.NgramIndex(longest, shortest), "index")
    index.read(text, len(text))
    found: int | None = index.place(text)
    return found


def expect_place(
    part: Any, text: list[int], longest: int, shortest: int, right: int | None, what: str
) -> None:
    index = watch(part.NgramIndex(longest, shortest), "index")
    done = index.read(text, len(text))
    got = index.place(text)
    if got != right:
        told = f"read of up to {len(text)} tokens, of a text that has as many"
        expect_equal(done, True, told, why=PORTION)
        expect_equal(got, right, what, why=why_place(part, SENTENCES, (text, longest, shortest)))


def last_looked_at(part: Any, text: list[int], most: int, call: int) -> int:
    """Of the tokens that a call of `read` looks at, the last one, counted from 1."""
    index, counted = part.NgramIndex(2, 2), Counted(text)
    for _ in range(call):
        counted.last = 0
        index.read(counted, most)
    return counted.last


@task("18.1")
def test_what_followed_last_time(part: Any) -> None:
    """The place is behind the n-gram's earlier occurrence, where what followed it begins."""
    expect_place(part, [5, 6, 7, 5, 6], 2, 1, 2, "where what followed 5 6 begins")


@task("18.1")
def test_an_ngram_does_not_find_itself(part: Any) -> None:
    """A text that repeats nothing has no place."""
    for text in ([1], [1, 2, 3], [4, 4, 5], [1, 2, 3, 2]):
        what = f"the place for {text}, n-grams of 2 and 3"
        expect_place(part, text, 3, 2, None, what)
    expect_place(part, [1, 2, 3], 2, 1, None, "the place for [1, 2, 3]")


@task("18.1")
def test_the_latest_of_several(part: Any) -> None:
    """Of several occurrences of the same n-gram the latest earlier one counts."""
    what = "the place behind 1 2, which stood twice before"
    expect_place(part, [1, 2, 9, 1, 2, 8, 1, 2], 2, 2, 5, what)


@task("18.1")
def test_the_longest_before_the_latest(part: Any) -> None:
    """A long n-gram counts before a shorter one that stood there later."""
    text = [1, 2, 3, 9, 5, 2, 3, 8, 1, 2, 3]
    expect_place(part, text, 3, 2, 3, "the place behind 1 2 3")
    text = [0, 1, 2, 3, 9, 5, 1, 2, 3, 8, 0, 1, 2, 3]
    expect_place(part, text, 3, 2, 9, "the place with n-grams of up to 3")


@task("18.1")
def test_both_ends_of_the_lengths(part: Any) -> None:
    """The shortest length is looked up, and one that is shorter is not."""
    expect_place(part, [4, 7, 9, 4], 3, 1, 1, "n-grams of 1 to 3")
    expect_place(part, [4, 5, 9, 4, 5], 3, 2, 2, "n-grams of 2 to 3")
    expect_place(part, [4, 7, 9, 4], 3, 2, None, "n-grams of 2 to 3")


@task("18.1")
def test_the_beginning_of_the_text(part: Any) -> None:
    """The text's first tokens are n-grams of their own length alone."""
    what = "the place for [7, 3, 7], n-grams of 2 and 3"
    expect_place(part, [7, 3, 7], 3, 2, None, what)
    expect_place(part, [7, 7, 7], 3, 3, None, "7 7 7, n-grams of 3")


@task("18.1")
def test_a_long_text_is_read_in_portions(part: Any) -> None:
    """A text is read at most so many tokens at a time, and completely in the end."""
    text = [*range(100, 109), 5, 6, 7, *range(200, 206), 5, 6]
    index = watch(part.NgramIndex(2, 2), "index")
    for call in range(3):
        got = index.read(text, 6)
        if got is not False:
            last = last_looked_at(part, text, 6, call + 1)
            took = f"It looks at the first {last} tokens, and may take in {6 * call + 6} by now."
            why = f"{took} {MOST}" if last > 6 * call + 7 else DONE
            expect_equal(got, False, f"read of 6 more tokens, call {call + 1}", why=why)
    expect_equal(
        index.read(text, 6), True, "read of the last of 19 tokens, in fours of 6", why=PORTION
    )
    expect_equal(index.place(text), 11, "the place behind 5 6", why=PORTION)
    expect_equal(index.read(text, 6), True, "read when there is nothing new", why=DONE)


@task("18.1")
def test_no_more_than_asked_for(part: ModuleType) -> None:
    """A call of `read` looks at no more than `most` new tokens."""
    text, most, enough = Counted(list(range(4000))), 50, 50 * 4 * 5
    part.NgramIndex(4, 2).read(text, most)
    if text.looks > enough:
        read = partial(part.NgramIndex(4, 2).read, CountedList(text.tokens), most)
        lines = steps_of(read, part).most_common(1)
        raise Fault(
            f"NgramIndex(4, 2).read(text, {most}) of 4,000 tokens: it looked at tokens {text.looks:,} "
            f"times, where {enough:,} are enough, most often in the line below",
            why=WHOLE if text.longest_slice > 1000 else STEP,
            line=lines[0][0] if lines else None,
        )


@task("18.1")
def test_a_new_token_costs_a_few_looks(part: Any) -> None:
    """The work for a new token does not grow with the text."""
    text = Counted([number * number % 997 for number in range(4000)])
    index = part.NgramIndex(4, 2)
    index.read(text, 5000)
    text.looks = 0
    for number in range(50):
        text.tokens.append(number % 7)
        index.read(text, 5000)
        index.place(text)
    problem = f"50 new tokens behind 4,000 took {text.looks:,} looks at the text"
    expect(text.looks <= 50 * 100, problem, why=ONCE)


def _why_portions(part: Any, text: list[int], longest: int, shortest: int) -> str:
    """PORTION, if the same text that is read at once has the right place."""
    index = part.NgramIndex(longest, shortest)
    index.read(list(text), len(text))
    is_right = index.place(list(text)) == naive.scanned(text, longest, shortest)
    return PORTION if is_right else ""


@task("18.1")
@examples(150)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=30),
    st.integers(1, 4),
    st.integers(1, 3),
    st.data(),
)
def test_finds_what_a_scan_finds(
    part: Any, text: list[int], longest: int, shortest: int, data: st.DataObject
) -> None:
    """However the text grows, and in whatever portions it is read, a scan finds the same place."""
    shortest = min(shortest, longest)
    index = watch(part.NgramIndex(longest, shortest), "index")
    known, growing = 0, list[int]()
    while known < len(text):
        known += data.draw(st.integers(1, len(text) - known))
        growing += text[len(growing) : known]  # as in the engine, where it is one list
        most = data.draw(st.integers(1, 8))
        calls = 0
        while not index.read(growing, most):
            calls += 1
            expect(calls <= known, f"read does not come to an end with {known} tokens", why=DONE)
        right = naive.scanned(text[:known], longest, shortest)
        got = index.place(growing)
        if got != right:
            why = why_place(part, SENTENCES, (text[:known], longest, shortest))
            what = f"the place for {text[:known]}, n-grams of {shortest} to {longest}"
            expect_equal(got, right, what, why=why or _why_portions(part, text, longest, shortest))
        expect_unchanged(growing, text[:known], "the text")


@task("18.1")
def test_read_of_just_as_many_as_there_are(part: Any) -> None:
    """`read` is done when nothing but the last token is left, also if it took in just `most` tokens."""
    index, text = watch(part.NgramIndex(2, 1), "index"), [*range(12), 0]
    expect_equal(index.read(text, 6), False, "read of the first 6 of 12 tokens", why=DONE)
    expect_equal(index.read(text, 6), True, "read of the other 6 of 12 tokens", why=DONE)
    for time in ("once", "twice"):
        expect_equal(index.place(text), 1, f"the place behind 0, asked {time}", why=AGAIN)


@task("18.1")
def test_ngrams_of_many_tokens(part: Any) -> None:
    """The longest n-gram decides, however long it is, though all but its first token stood later."""
    for length in (5, 9, 17, 40):
        start_script()
        gram = list(range(length))
        text = [*gram, 100, *gram[1:], 101, *gram]
        what = f"the place behind {length} tokens, whose last {length - 1} have stood once more"
        expect_equal(place_in(part, text, length, 1), length, what, why=EACH_LENGTH)


ALIKE = (10, 11, 31, 33, 37, 131, 257, 1000, 1009, 10_000, 65_599, 100_000, 1_000_003)
"""By which tokens are multiplied to make one number of an n-gram, beside powers of 2."""


@task("18.1")
def test_two_ngrams_are_two(part: Any) -> None:
    """An n-gram finds none that differs from it, whatever number or text both could be made into."""
    pairs = [([1, 11], [11, 1]), ([1, 23], [12, 3])]
    pairs += [([1, 0], [0, base]) for base in (*ALIKE, *(1 << bits for bits in range(3, 25)))]
    for one, other in pairs:
        for first, last in ((one, other), (other, one)):
            text = [*first, 5, *last]
            got = place_in(part, text, 2, 2)
            expect_equal(got, None, f"the place for {text}, n-grams of 2 to 2", why=WHOLE_KEYS)
