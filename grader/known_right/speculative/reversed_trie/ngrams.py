"""N-grams are ways from their last token to their first in one tree: a single walk finds the longest."""

from collections.abc import Sequence
from typing import Any


class NgramIndex:
    __slots__ = ("longest", "root", "shortest", "taken")

    def __init__(self, longest: int, shortest: int) -> None:
        self.longest, self.shortest = longest, shortest
        self.root: dict[int, list[Any]] = {}  # by token: [the place behind, those before it]
        self.taken = 0

    def read(self, text: Sequence[int], most: int) -> bool:
        last = len(text) - 1
        while self.taken < last and most > 0:
            self.taken, most = self.taken + 1, most - 1
            below = self.root
            for at in range(self.taken - 1, max(self.taken - self.longest, 0) - 1, -1):
                entry = below.setdefault(text[at], [0, {}])
                entry[0] = self.taken
                below = entry[1]
        return self.taken >= last

    def place(self, text: Sequence[int]) -> int | None:
        found, below = None, self.root
        for length in range(1, min(self.longest, len(text) - 1) + 1):
            entry = below.get(text[-length])
            if entry is None:
                break
            if length >= self.shortest:
                found = entry[0]
            below = entry[1]
        return found
