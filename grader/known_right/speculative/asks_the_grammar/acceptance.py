"""Gained tokens come from a generator that ends at the first that is not the draft."""

from collections.abc import Iterator, Sequence


def accepted(drafts: Sequence[int], samples: Sequence[int]) -> list[int]:
    return list(_gained(iter(drafts), iter(samples)))


def _gained(drafts: Iterator[int], samples: Iterator[int]) -> Iterator[int]:
    for token in samples:
        if token <= -1:
            return
        yield token
        if next(drafts, -1) != token:
            return
