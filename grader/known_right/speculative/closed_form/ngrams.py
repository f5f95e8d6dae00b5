"""A table for each length of n-gram, whose keys are bytes; the last tokens are kept beside."""

from array import array
from collections.abc import Sequence


class NgramIndex:
    def __init__(self, longest: int, shortest: int) -> None:
        self._tables: dict[int, dict[bytes, int]] = {
            length: {} for length in range(shortest, longest + 1)
        }
        self._end = 0

    def read(self, text: Sequence[int], most: int) -> bool:
        stop = max(self._end, min(len(text) - 1, self._end + most))
        for length, table in self._tables.items():
            for behind in range(max(self._end + 1, length), stop + 1):
                table[_bytes(text[behind - length : behind])] = behind
        self._end = stop
        return len(text) - 1 <= stop

    def place(self, text: Sequence[int]) -> int | None:
        for length in sorted(self._tables, reverse=True):
            if length >= len(text):
                continue
            found = self._tables[length].get(_bytes(text[len(text) - length :]))
            if found:
                return found
        return None


def _bytes(tokens: Sequence[int]) -> bytes:
    return array("q", tokens).tobytes()
