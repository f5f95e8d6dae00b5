"""The definition of stop strings, letter by letter: the oracle of task 7.2."""

from collections.abc import Sequence


class NaiveStopChecker:
    """See `yaie.core.contracts.StopChecker`."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._held = ""

    def push(self, text: str) -> tuple[str, str | None]:
        shown = ""
        for letter in text:
            self._held += letter
            if ended := [stop for stop in self._stops if self._held.endswith(stop)]:
                stop = max(ended, key=len)
                return shown + self._held.removesuffix(stop), stop
            while self._held and not any(stop.startswith(self._held) for stop in self._stops):
                shown, self._held = shown + self._held[0], self._held[1:]
        return shown, None

    def flush(self) -> str:
        held, self._held = self._held, ""
        return held


def first_stop(text: str, stops: Sequence[str]) -> tuple[str, str | None]:
    """(the text before the first stop string that is complete, that string), or (all of it, None)."""
    checker = NaiveStopChecker(stops)
    shown, stop = checker.push(text)
    return (shown, stop) if stop is not None else (shown + checker.flush(), None)
