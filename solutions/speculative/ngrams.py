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
        # BEGIN SOLUTION 18.1
        end = min(len(text) - 1, self._num_read + most)
        for behind in range(self._num_read + 1, end + 1):
            for length in self._lengths:
                if length <= behind:
                    self._places[tuple(text[behind - length : behind])] = behind
        self._num_read = max(self._num_read, end)
        return self._num_read >= len(text) - 1
        # END SOLUTION

    def place(self, text: Sequence[int]) -> int | None:
        """Behind the latest earlier occurrence of the longest n-gram that the text ends in."""
        # BEGIN SOLUTION 18.1
        for length in self._lengths:
            if length < len(text):
                place = self._places.get(tuple(text[-length:]))
                if place is not None:
                    return place
        return None
        # END SOLUTION


# ANCHOR_END: ngrams
