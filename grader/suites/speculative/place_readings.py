"""What mistakes make of `NgramIndex.place`, on texts that tell them apart."""

from collections.abc import Callable, Sequence
from typing import Any

from grader.kit.misread import Reading, reading_of

Case = tuple[list[int], int, int]
"""A text, and the longest and shortest n-grams that are looked up."""
CASES: tuple[Case, ...] = (
    ([5, 6, 7, 5, 6], 2, 1),
    ([1, 2, 3, 2], 3, 2),
    ([1, 2, 3], 2, 1),
    ([1, 2, 9, 1, 2, 8, 1, 2], 2, 2),
    ([1, 2, 3, 9, 5, 2, 3, 8, 1, 2, 3], 3, 2),
    ([0, 1, 2, 3, 9, 5, 1, 2, 3, 8, 0, 1, 2, 3], 3, 2),
    ([4, 7, 9, 4], 3, 1),
    ([4, 5, 9, 4, 5], 3, 2),
    ([4, 7, 9, 4], 3, 2),
    ([7, 7, 7], 3, 3),
    ([3, 3, 3, 3, 3], 2, 1),
)


def why_place(part: Any, sentences: Sequence[str], case: Case) -> str:
    """The sentence whose mistake explains what the part says of all these texts, and of this one; ""
    if none does. sentences: those on the index behind, on the n-gram itself, the latest, the longest,
    the lengths, and on what is read."""
    behind, last, latest, longest, lengths, portion = sentences
    readings: list[Reading] = [
        (behind, lambda *case: _looked_up(*case, place=lambda end, n: end - n)),
        (behind, lambda *case: _looked_up(*case, place=lambda end, n: end - 1)),
        (last, lambda *case: _looked_up(*case, own_end=True)),
        (last, lambda *case: _looked_up(*case, own_end=True, whole=True)),
        (latest, lambda *case: _looked_up(*case, pick=min)),
        (longest, lambda *case: _looked_up(*case, order=lambda sizes: list(sizes)[::-1])),
        (lengths, lambda text, most, least: _looked_up(text, most, most)),
        (lengths, lambda text, most, least: _looked_up(text, most, least + 1)),
        (lengths, lambda text, most, least: _looked_up(text, most, 1)),
        (lengths, lambda text, most, least: _looked_up(text, most - 1, least)),
        (lengths, lambda text, most, least: _looked_up(text, most + 1, least)),
        (portion, lambda *case: _looked_up(*case, num_read=1)),
    ]
    return reading_of(lambda *case: _asked(part, *case), readings, [*CASES, case])


def _asked(part: Any, text: list[int], longest: int, shortest: int) -> int | None:
    index = part.NgramIndex(longest, shortest)
    index.read(list(text), len(text))
    found: int | None = index.place(list(text))
    return found


def _looked_up(
    text: list[int],
    longest: int,
    shortest: int,
    *,
    place: Callable[[int, int], int] = lambda end, n: end,
    pick: Callable[[list[int]], int] = max,
    order: Callable[[range], Sequence[int]] = lambda sizes: sizes,
    own_end: bool = False,
    whole: bool = False,
    num_read: int = 1000,
) -> int | None:
    """By a scan. place: what is told of an occurrence's end. pick: which of several. order: of the
    lengths. own_end: whether the text's own end is an occurrence. whole: whether an n-gram may be all of
    the text. num_read: tokens that are taken in."""
    for n in order(range(longest, shortest - 1, -1)):
        if n < 1 or n >= len(text) + whole:
            continue
        ends = range(n, min(len(text) + own_end, num_read + 1))
        found = [end for end in ends if text[end - n : end] == text[-n:]]
        if found:
            return place(pick(found), n)
    return None
