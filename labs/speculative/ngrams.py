# Lab 18, your part: task 18.1. The rest is given.
"""Drafts from the text itself: what followed an earlier occurrence of its last few tokens."""

from collections.abc import Sequence


# ANCHOR: ngrams
class NgramIndex:
    """See `yaie.core.contracts.drafting.NgramIndex`. `naive.scanned` finds the same by a scan."""

    def __init__(self, longest: int, shortest: int) -> None:
        self._lengths = range(longest, shortest - 1, -1)
        self._places: dict[tuple[int, ...], int] = {}  # n-gram: the index behind it
        self._num_read = 0

    def read(self, text: Sequence[int], most: int) -> bool:
        """Take in up to `most` more tokens, the text's last one excepted; whether that is all."""
        # TODO 18.1: your code here (the reference: 7 lines).
        raise NotImplementedError(
            "speculative task 18.1: not implemented yet; see chapter Speculative decoding"
        )

    def place(self, text: Sequence[int]) -> int | None:
        """Behind the latest earlier occurrence of the longest n-gram that the text ends in."""
        # TODO 18.1: your code here (the reference: 6 lines).
        raise NotImplementedError(
            "speculative task 18.1: not implemented yet; see chapter Speculative decoding"
        )


# ANCHOR_END: ngrams
