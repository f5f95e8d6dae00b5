"""Which known name a misspelled one was meant to be."""

from collections.abc import Iterable
from difflib import get_close_matches

LEAST_CHARS, MOST_CHARS = 4, 32
"""Of a name that is looked at: a shorter one is near to many, and a longer one takes longer."""
CLOSE = 0.86
"""Twice the characters in common over those of both, as difflib counts: one wrong or missing letter of
five, two of twelve."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is close to this one; None if none is."""
    if not LEAST_CHARS <= len(name) <= MOST_CHARS:
        return None
    return next(iter(get_close_matches(name, known, 1, CLOSE)), None)
