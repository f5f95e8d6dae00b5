"""Another right checker: a list of all the places where a stop string may have begun.

Every letter begins a match of each stop string that starts with it, and ends those that it does not go
on. The oldest that is left says what is held back. No letter is looked at twice.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(slots=True)
class _Match:
    """begin: a position in the whole text. seen: letters that agree."""

    begin: int
    stop: str
    seen: int = 0


class StopChecker:
    """See `yaie.core.contracts.StopChecker`."""

    def __init__(self, stops: Iterable[str]) -> None:
        self._by_first: dict[str, list[str]] = {}
        for stop in sorted(set(stops), key=len, reverse=True):
            self._by_first.setdefault(stop[0], []).append(stop)
        self._open: list[_Match] = []
        self._buffer: list[str] = []
        self._shown = 0

    def push(self, text: str) -> tuple[str, str | None]:
        """(text that is safe to show, the stop string that was found or None)."""
        for letter in text:
            at = self._shown + len(self._buffer)
            self._buffer.append(letter)
            self._open += [_Match(at, stop) for stop in self._by_first.get(letter, ())]
            going = []
            for match in self._open:
                if match.stop[match.seen] == letter:
                    match.seen += 1
                    going.append(match)
            self._open = going
            # In order of their beginnings: the first that is complete is the longest.
            done = next((match for match in going if match.seen == len(match.stop)), None)
            if done is not None:
                shown = self._give(done.begin)
                self._buffer, self._open = [], []
                return shown, done.stop
        first = self._open[0].begin if self._open else self._shown + len(self._buffer)
        return self._give(first), None

    def _give(self, end: int) -> str:
        """What was held back up to a position."""
        count = end - self._shown
        given, self._buffer = self._buffer[:count], self._buffer[count:]
        self._shown = end
        return "".join(given)

    def flush(self) -> str:
        """All that is held."""
        self._open = []
        return self._give(self._shown + len(self._buffer))
