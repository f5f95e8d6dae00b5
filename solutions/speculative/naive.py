"""What `NgramIndex` finds, by a scan of the whole text: the definition, and the oracle."""

from collections.abc import Sequence


# ANCHOR: scanned
def scanned(text: Sequence[int], longest: int, shortest: int) -> int | None:
    """Behind the latest earlier occurrence of the longest n-gram that the text ends in."""
    for length in range(longest, shortest - 1, -1):
        for start in range(len(text) - length - 1, -1, -1):
            if list(text[start : start + length]) == list(text[len(text) - length :]):
                return start + length
    return None


# ANCHOR_END: scanned
