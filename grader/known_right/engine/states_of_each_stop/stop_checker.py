"""Another right checker: how much of each stop string the text ends with (Knuth, Morris, Pratt).

A letter moves each of these numbers on. The largest says how many letters are held back, and a number
that reaches its stop's length has found it. The text that is held is the beginning of that stop string.
"""

from collections.abc import Sequence


class _Stop:
    """One stop string and how far it has been read."""

    __slots__ = ("back", "seen", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.seen = 0
        self.back = [0] * len(text)
        length = 0
        for at in range(1, len(text)):
            while length and text[at] != text[length]:
                length = self.back[length - 1]
            length += text[at] == text[length]
            self.back[at] = length

    def read(self, letter: str) -> bool:
        """Whether the stop string ends with this letter."""
        while self.seen and self.text[self.seen] != letter:
            self.seen = self.back[self.seen - 1]
        self.seen += self.text[self.seen] == letter
        return self.seen == len(self.text)


class StopChecker:
    """See `yaie.core.contracts.StopChecker`."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [_Stop(stop) for stop in dict.fromkeys(stops)]
        self._num_held = 0

    def push(self, text: str) -> tuple[str, str | None]:
        """(text that is safe to show, the stop string that was found or None)."""
        if not self._stops:
            return text, None
        text = self.flush_text() + text
        for at in range(self._num_held, len(text)):
            found = [stop.text for stop in self._stops if stop.read(text[at])]
            if found:
                longest = max(found, key=len)
                self._forget()
                return text[: at + 1 - len(longest)], longest
        self._num_held = max(stop.seen for stop in self._stops)
        return text[: len(text) - self._num_held], None

    def flush_text(self) -> str:
        """What is held: the beginning of the stop string that is read furthest."""
        return max((stop.text[: stop.seen] for stop in self._stops), key=len, default="")

    def flush(self) -> str:
        """What was held back, when no more text comes."""
        held = self.flush_text()
        self._forget()
        return held

    def _forget(self) -> None:
        self._num_held = 0
        for stop in self._stops:
            stop.seen = 0
