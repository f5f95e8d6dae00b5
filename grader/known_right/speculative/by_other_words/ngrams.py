"""A trie of n-grams read backwards: deeper means longer."""

from __future__ import annotations

from collections.abc import Sequence


class Node:
    """What stands before a run of tokens, and behind which place the run was seen last."""

    __slots__ = ("before", "place")

    def __init__(self) -> None:
        self.before: dict[int, Node] = {}
        self.place: int | None = None


class NgramIndex:
    """See `yaie.core.contracts.drafting.NgramIndex`."""

    def __init__(self, longest: int, shortest: int) -> None:
        self._longest, self._shortest = longest, shortest
        self._root = Node()
        self._next = 0

    def read(self, text: Sequence[int], most: int) -> bool:
        """Take in up to `most` more tokens, the text's last one excepted; whether that is all."""
        while most > 0 and self._next < len(text) - 1:
            node = self._root
            for depth in range(min(self._longest, self._next + 1)):
                node = node.before.setdefault(text[self._next - depth], Node())
                node.place = self._next + 1
            self._next += 1
            most -= 1
        return self._next >= len(text) - 1

    def place(self, text: Sequence[int]) -> int | None:
        """Behind the latest earlier occurrence of the longest n-gram that the text ends in."""
        node, found = self._root, None
        for depth in range(1, min(self._longest, len(text)) + 1):
            if text[-depth] not in node.before:
                break
            node = node.before[text[-depth]]
            if depth >= self._shortest:
                found = node.place
        return found
