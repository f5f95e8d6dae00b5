"""Integers that are equal and not the same object, and ids that are alike in their lowest bits."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from grader.kit.expect import Mismatch
from grader.kit.script import show

IDS = ((0, 1, 2), (1, 0x101), (1, 0x8001), (1, 0x1000001))
"""Token ids to draw from: small ones, and pairs that are alike in their lowest 8, 15 or 24 bits."""
THEIRS = "An argument belongs to the caller, who goes on using it: copy what you want to change."
MASKS = (0xFF, 0x7FFF, 0xFFFFFF)
SAME_OBJECT = (
    "Two equal ids are two objects as a rule (CPython has one object each for -5 to 256 alone). `is` "
    "asks whether they are one object. Compare with `==`."
)
NO_BITS_LOST = (
    "A token id is any integer from 0 on, 300,000 and more: nothing of it may be cut off."
)
FRAMES = 10_000


class Number(int):
    """An int that is not the same object as an equal one, however small it is."""


def apart(numbers: Iterable[int]) -> list[int]:
    """Equal numbers, of which those above 256 are objects of their own, as they are in an engine: one
    comes from the prompt and the other from a tensor."""
    return [int(str(number)) for number in numbers]


def expect_unchanged(given: object, before: object, what: str) -> None:
    """An argument is what it was before the call. what: names it and its function."""
    if given != before:
        raise Mismatch(f"{what} was changed by the call", show(before), show(given), THEIRS)


def is_cut(got: list[int], right: list[int]) -> bool:
    """Whether these are the right ids, cut to a few bits."""
    return got != right and any(got == [number & mask for number in right] for mask in MASKS)


@contextmanager
def deep_calls() -> Iterator[None]:
    """In the block Python calls itself FRAMES deep: recursion over a long list is slow, and right."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, FRAMES))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
