"""Vocabularies whose ids begin beyond 8, 15 and 24 bits: cut to fewer bits, an id is another token."""

from collections.abc import Callable

from grader.suites.engine.spellings import Decode

FAR = (1 << 24) + (1 << 15)
"""The first id. Cut to 8, 15 or 24 bits it is none of the vocabulary."""
FIRSTS = {
    300: "up to 256 it is right. Beyond that CPython makes an object for each number, so `is` tells "
    "equal ones apart, and `==` does not. Or an id is cut to 8 bits somewhere.",
    32_768: "up to 32,767 it is right. That is the largest number of 15 bits: an id is cut somewhere.",
    FAR: "up to 16,777,215 it is right. That is the largest number of 24 bits: an id is cut somewhere, "
    "or becomes a float32, which holds no larger integers exactly.",
}
"""First ids to try, ascending, and what it tells if they are the first that are wrong."""


def from_far(decode: Decode, first: int = FAR) -> Decode:
    """The same vocabulary behind `first`. An id before it is read as "?"."""

    def decode_far(token_ids: list[int]) -> str:
        if any(token < first for token in token_ids):
            return "?" * len(token_ids)
        return decode([token - first for token in token_ids])

    return decode_far


def first_wrong(is_right: Callable[[int], bool]) -> tuple[int, str]:
    """(the smallest of FIRSTS that is not right, what that tells). FAR is known to be wrong."""
    first = next((one for one in FIRSTS if not is_right(one)), FAR)
    return first, f"With ids {FIRSTS[first]}"
