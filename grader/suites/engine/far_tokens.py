"""A vocabulary whose ids begin beyond 24 bits: an id that is kept in fewer bits is another token."""

from collections.abc import Sequence

from grader.suites.engine.spellings import Decode

FAR = (1 << 24) + (1 << 15)
"""The first id. Cut to 8, 15 or 24 bits it is none of the vocabulary."""
NARROW = (
    "An id may be any number that Python has. One that is cut to fewer bits is another token: decoded, "
    "looked up or kept, it stands for something else."
)


def far(token_ids: Sequence[int]) -> list[int]:
    """These ids, each as far behind FAR as it is behind 0."""
    return [FAR + token for token in token_ids]


def from_far(decode: Decode) -> Decode:
    """The same vocabulary behind FAR. An id before it is read as "?"."""

    def decode_far(token_ids: list[int]) -> str:
        if any(token < FAR for token in token_ids):
            return "?" * len(token_ids)
        return decode([token - FAR for token in token_ids])

    return decode_far
