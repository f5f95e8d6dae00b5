"""A table for each length, made when the text is long enough for it; keys are bytes."""

from array import array
from collections.abc import Sequence


class NgramIndex:
    """See `yaie.core.contracts.drafting.NgramIndex`."""

    def __init__(self, longest: int, shortest: int) -> None:
        self._longest, self._shortest = longest, shortest
        self._tables: dict[int, dict[bytes, int]] = {}
        self._end = 0  # tokens that were taken in

    def read(self, text: Sequence[int], most: int) -> bool:
        """Take in up to `most` more tokens, the text's last one excepted; whether that is all."""
        known = len(text) - 1
        while self._end < known and most > 0:
            self._end, most = self._end + 1, most - 1
            last = text[max(0, self._end - self._longest) : self._end]
            for length in range(self._shortest, len(last) + 1):
                self._tables.setdefault(length, {})[_key(last[-length:])] = self._end
        return self._end >= known

    def place(self, text: Sequence[int]) -> int | None:
        """Behind the latest earlier occurrence of the longest n-gram that the text ends in."""
        last = text[-self._longest :]
        return next(
            (
                self._tables[length][key]
                for length in sorted(self._tables, reverse=True)
                if length <= len(last) and (key := _key(last[-length:])) in self._tables[length]
            ),
            None,
        )


def _key(tokens: Sequence[int]) -> bytes:
    return array("q", tokens).tobytes()
