"""Samples that failed are cut off first, and what is equal is counted then."""

from collections.abc import Sequence
from itertools import takewhile


def accepted(drafts: Sequence[int], samples: Sequence[int]) -> list[int]:
    sound = list(takewhile(lambda token: token >= 0, samples))
    pairs = zip(drafts, sound, strict=False)
    right = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return sound[: right + 1]
