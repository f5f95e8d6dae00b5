"""Vocabularies whose ids begin beyond 8, 15 and 24 bits: an id that is kept in fewer bits is another token."""

from collections.abc import Callable, Sequence

from grader.suites.engine.spellings import Decode

FAR = (1 << 24) + (1 << 15)
"""The first id. Cut to 8, 15 or 24 bits it is none of the vocabulary."""
FIRSTS = {
    300: "256. Beyond that CPython makes an object for each number, so `is` tells equal ones apart where "
    "`==` does not. Or an id is cut to 8 bits somewhere.",
    1 << 15: "32,767, the largest number of 15 bits: an id is cut to so many somewhere.",
    FAR: "16,777,215, the largest number of 24 bits: an id is cut to so many somewhere, or becomes a "
    "float32, which holds no larger integers exactly.",
}
"""First ids to try, ascending, and where they begin to be too large."""


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
    return first, f"It is right with ids up to {FIRSTS[first]}"
