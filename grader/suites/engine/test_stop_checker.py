"""Task 7.2: stop strings, found as if the text came character by character."""

import time
from collections.abc import Sequence
from functools import partial
from types import ModuleType
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from grader.kit import count_calls, examples, expect, expect_equal, note, start_script, task, watch
from grader.kit.expect import claiming
from grader.kit.siblings import telling
from grader.suites.engine.naive_stop import NaiveStopChecker
from grader.suites.engine.pieces import changed, held_back, of_pushes
from yaie.core.contracts import StopChecker

BOUNDARY = (
    "A token may end anywhere: the first characters of a stop string may come with one token, the rest "
    "with the next. What may become one is held back until it is decided."
)
SOONER = (
    "Only the longest end of the text that is the start of a stop string is undecided. The rest is "
    "safe, and the reader waits for it."
)
CUTS = (
    "The answer must not depend on how the text was cut: it is over at the character that completes a "
    "stop string, whichever began first; of several that end there, the longest counts."
)
AGAIN = "Whatever was shown is decided; looking at it again makes n letters cost n * n."
SPACES = (
    "Many stop strings begin with a line break. Strip neither them nor what is held back: it is part of "
    "the text if no stop string comes of it."
)
AS_WRITTEN = (
    "Line breaks of two characters, and accents that are characters by themselves, are text."
)
ORDER = (
    "The one that comes first in the list is chosen. Where a text ends does not depend on the list."
)
ALL_OF_THEM = "A client may send 64 stop strings. Each of them ends the text, the last one too."
THEIRS = (
    "The list belongs to the request. Sort a copy of it, or better: find out which one ends first."
)
A_LONG_PIECE = "However long a piece is, all of it is shown but what may become a stop string."
LETTERS = "A client's stop string is plain text, not a pattern: . * ? [ have no special meaning."


MOST_STOPS = 8
"""Stop strings that are shown."""


def checked(part: ModuleType, stops: Sequence[str], pieces: Sequence[str]) -> list[Any]:
    """What each push returned, in order."""
    few = (
        str(list(stops))
        if len(stops) <= MOST_STOPS
        else f"[{stops[0]!r}, {stops[1]!r}, ..., {stops[-1]!r}]"
    )
    note(f"checker = StopChecker({few})")
    checker = watch(part.StopChecker(stops), "checker")
    return [checker.push(piece) for piece in pieces]


def texts_of(pushes: Sequence[Any]) -> list[str]:
    return [text for text, _ in pushes]


def expect_pushes(
    part: ModuleType,
    stops: Sequence[str],
    pieces: Sequence[str],
    right: Sequence[tuple[str, str | None]],
    why: str = "",
    what: str = "each push",
) -> None:
    """What each push returns. why: explains what is neither returned twice nor lost."""
    found = checked(part, stops, pieces)
    is_pushes = all(isinstance(one, tuple) and isinstance(one[0], str) for one in found)
    why = of_pushes(stops, pieces, found, why) if is_pushes else ""
    expect_equal(found, list(right), what, why=why)


@task("7.2")
def test_without_stop_strings_text_passes(part: ModuleType) -> None:
    """Without stop strings everything is shown at once."""
    expect_pushes(part, (), ["any", "thing"], [("any", None), ("thing", None)])


@task("7.2")
def test_the_stop_string_is_not_shown(part: ModuleType) -> None:
    """The text ends before the stop string; neither it nor what follows is shown."""
    right = [("yes", "</s>")]
    expect_pushes(part, ["</s>"], ["yes</s>no</s>"], right, what="what push returned")


@task("7.2")
def test_no_more_is_held_back_than_needed(part: ModuleType) -> None:
    """Text that cannot begin a stop string is shown at once, however long the stop strings are."""
    pieces, right = ["hello", " world"], [("hello", None), (" world", None)]
    expect_pushes(part, ["</answer>"], pieces, right, SOONER)


@task("7.2")
def test_a_stop_string_across_pieces(part: ModuleType) -> None:
    """A stop string is found when it comes in pieces, and none of them has been shown by then."""
    right = [("one ", None), ("", None), ("", "END")]
    expect_pushes(part, ["END"], ["one E", "N", "D two"], right, BOUNDARY)


@task("7.2")
def test_what_turns_out_harmless_is_shown(part: ModuleType) -> None:
    """Text that was held back is shown as soon as it cannot become a stop string any more."""
    right = [("", None), ("", None), ("ENX", None), (" on", None)]
    why = "Held back is not thrown away: it comes before the text that decided it."
    expect_pushes(part, ["END"], ["E", "N", "X", " on"], right, why)


@task("7.2")
def test_capitals_count(part: ModuleType) -> None:
    """A stop string is the text that the client sent: capitals and small letters differ."""
    why = "Half of all answers hold the word that some stop string spells in capitals."
    expect_pushes(part, ["END"], ["the end", " END"], [("the end", None), (" ", "END")], why)


@task("7.2")
def test_white_space_counts(part: ModuleType) -> None:
    """Spaces and line breaks are characters of a stop string, and of the text that is held back."""
    for pieces, right in (
        (["one.\n", "\nUs", "er:"], [("one.", None), ("", None), ("", "\n\nUser:")]),
        (["one.\n", "two"], [("one.", None), ("\ntwo", None)]),
        (["\t", " ", "\n"], [("\t", None), (" ", None), ("", None)]),
    ):
        start_script()
        found = checked(part, ["\n\nUser:"], pieces)
        # A space that is stripped looks like a character that is lost at the border.
        with telling(partial(which_is_late, part, ["\n\nUser:"], pieces, right)):
            expect_equal(found, right, "each push", why=SPACES)
    start_script()
    right = [("one\r", None), ("\ntwo e\u0301\r", None)]
    found = checked(part, ["\n\nUser:"], ["one\r", "\ntwo e\u0301\r\n"])
    with claiming(AS_WRITTEN), telling(lambda: changed(*map(texts_of, (found, right)))):
        expect_equal(found, right, "each push")


def which_is_late(
    part: ModuleType,
    stops: Sequence[str],
    pieces: Sequence[str],
    right: Sequence[tuple[str, str | None]],
) -> str:
    """Of text that is held back without need, and comes at the end."""
    checker, naive = part.StopChecker(stops), NaiveStopChecker(stops)
    found = [checker.push(piece) for piece in pieces]
    for piece in pieces:
        naive.push(piece)
    return held_back(stops, found, right, checker.flush(), naive.flush())


@task("7.2")
def test_a_stop_string_is_no_pattern(part: ModuleType) -> None:
    """Characters with a meaning in regular expressions or file names are like any other."""
    expect_pushes(part, ["a.c"], ["abc", " a.c"], [("abc", None), (" ", "a.c")], LETTERS)
    expect_pushes(part, ["?", "**"], ["a*b", " **c"], [("a*b", None), (" ", "**")], LETTERS)


@task("7.2")
def test_a_start_within_a_start(part: ModuleType) -> None:
    """Where a start fails, a later one within it may still succeed."""
    right = [("", None), ("", None), ("a", None), ("", "aab")]
    why = "After aaa the first a is safe, but the last two still are the start of aab."
    expect_pushes(part, ["aab"], ["a", "a", "a", "b"], right, why)


@task("7.2")
def test_the_first_to_be_complete_ends_the_text(part: ModuleType) -> None:
    """Of several stop strings the one that is complete first counts, of those that end together the
    longest, in whatever order they were given."""
    for pair, right in ((["bcde", "cd"], ("ab", "cd")), (["cd", "bcd"], ("a", "bcd"))):
        for stops in (pair, pair[::-1]):
            start_script()
            with telling(partial(which_counts, part, pair, "abcdef", right)):
                expect_pushes(part, stops, ["abcdef"], [right], CUTS, "push")
    start_script()
    expect_pushes(part, ["ab", "a"], ["xab"], [("x", "a")], CUTS, "one inside the other")


def which_counts(part: ModuleType, pair: list[str], text: str, right: tuple[str, str]) -> str:
    """By what a part chooses between two stop strings."""
    one, other = (part.StopChecker(stops).push(text)[1] for stops in (pair, pair[::-1]))
    if (one, other) == (pair[0], pair[1]):
        return f"{ORDER} {CUTS}"
    if one == other == min(pair, key=text.index) != right[1]:
        return f"{one!r} is chosen in either order of the list: it begins first. {CUTS}"
    return CUTS


@task("7.2")
def test_each_of_many_stop_strings(part: ModuleType) -> None:
    """Of 64 stop strings the last one is found like the first, and their list stays as it is."""
    stops = [*(f"<{number}>" for number in range(63)), "END"]
    theirs = list(stops)
    with telling(lambda: how_many_count(part, stops)):
        expect_pushes(part, theirs, ["one E", "ND"], [("one ", None), ("", "END")], ALL_OF_THEM)
    expect_equal(theirs, stops, "the list of stop strings, after the pushes", why=THEIRS)


def how_many_count(part: ModuleType, stops: list[str]) -> str:
    """Up to which place in the list a stop string is found."""
    others, sought = stops[:-1], stops[-1]

    def is_found(place: int) -> bool:
        listed = [*others[:place], sought, *others[place:]]
        return bool(part.StopChecker(listed).push(f"one {sought}")[1] == sought)

    missed = [place for place in range(len(stops)) if not is_found(place)]
    if missed and missed == list(range(missed[0], len(stops))):
        return f"{ALL_OF_THEM} {sought!r} is found as number {missed[0]} of the list, no further."
    return ALL_OF_THEM


@task("7.2")
def test_flush_gives_what_was_held_back(part: ModuleType) -> None:
    """At the end of the text what was held back is shown, once; after a stop string nothing is."""
    note("checker = StopChecker(['END'])")
    checker = watch(part.StopChecker(["END"]), "checker")
    checker.push("the EN")
    why = "The text is over, and this was no stop string after all."
    expect_equal(checker.flush(), "EN", "what flush returned", why=why)
    expect_equal(checker.flush(), "", "what a second flush returned", why=why)
    note("checker = StopChecker(['END'])")
    checker = watch(part.StopChecker(["END"]), "checker")
    checker.push("the E")
    checker.push("ND of")
    why = "The stop string and what follows it are no part of the output."
    expect_equal(checker.flush(), "", "what flush returned after a stop string", why=why)


@task("7.2")
def test_a_letter_costs_the_same_early_and_late(part: ModuleType) -> None:
    """The work for a letter does not grow with the text before it."""
    for text in ("abcdefgh", "aaaaaaaa"):
        checker = part.StopChecker(["aaaaaaab", "b" * 30])

        def push_all(checker=checker, text=text) -> None:  # type: ignore[no-untyped-def]
            for letter in text * 5:
                checker.push(letter)

        early = count_calls(push_all)
        for _ in range(20):
            push_all()
        late = count_calls(push_all)
        expect(
            late <= 2 * early,
            f"40 letters take {early} calls at the beginning and {late} after 800 letters",
            why=AGAIN,
        )


@task("7.2")
def test_a_piece_takes_as_long_behind_a_long_text(part: ModuleType) -> None:
    """A piece of text takes the same time behind 25,000 words as at the beginning."""
    checker = part.StopChecker([f"END{number}" for number in range(8)])
    early = best_time(checker)
    # Letters of the stop strings: a search that skips what it cannot use must look at each of them, and
    # takes a hundred times as long as a piece does, on any machine.
    shown, _ = checker.push("DEN " * 25_000)
    expect_equal(len(shown), 100_000, "letters shown of a piece of 100,000", why=A_LONG_PIECE)
    late = best_time(checker)
    expect(
        late <= 10 * early,
        f"pieces take {late / early:.0f} times as long behind 25,000 words as at the beginning",
        why=AGAIN,
    )


def best_time(checker: StopChecker) -> float:
    """Seconds for 5 pushes, the shortest of several rounds."""
    seconds = []
    for _ in range(20):
        begun = time.perf_counter()
        for _ in range(5):
            checker.push("one more ")
        seconds.append(time.perf_counter() - begun)
    return min(seconds)


PIECES = st.lists(st.text("ab", max_size=5), max_size=8)
STOPS = st.lists(st.text("ab", min_size=1, max_size=4), max_size=3)


@task("7.2")
@examples(250)
@given(stops=STOPS, pieces=PIECES)
def test_any_text_in_any_pieces(part: ModuleType, stops: list[str], pieces: list[str]) -> None:
    """Whatever the stop strings and the pieces, it is as if the text came character by character."""
    note(f"checker = StopChecker({stops})")
    checker, naive = watch(part.StopChecker(stops), "checker"), NaiveStopChecker(stops)
    for piece in pieces:
        shown, stop = checker.push(piece)
        right_shown, right_stop = naive.push(piece)
        expect_equal(stop, right_stop, f"the stop string found in {piece!r}", why=CUTS)
        why = CUTS if stop else SOONER * (len(shown) < len(right_shown))
        expect_equal(shown, right_shown, f"what {piece!r} shows", why=why)
        if stop is not None:
            return
    expect_equal(checker.flush(), naive.flush(), "what flush returned")
