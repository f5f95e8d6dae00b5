"""Stop strings, found across token boundaries."""

from collections.abc import Sequence


class StopChecker:
    """See `yaie.core.contracts.StopChecker`. Behaves as if the text came character by character."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._held = ""

    # ANCHOR: push
    def push(self, text: str) -> tuple[str, str | None]:
        """(text that is safe to show, the stop string that was found or None)."""
        # BEGIN SOLUTION 7.2
        if not self._stops:
            return text, None
        text = self._held + text
        found = [(at + len(stop), at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self._held = ""
            _, start, stop = min(found)
            return text[:start], stop
        safe = len(text) - self._num_undecided(text)
        self._held = text[safe:]
        return text[:safe], None
        # END SOLUTION

    def _num_undecided(self, text: str) -> int:
        """Length of the longest end of `text` that is the start of a stop string."""
        # BEGIN SOLUTION 7.2
        longest = min(len(text), max(map(len, self._stops)) - 1)
        for length in range(longest, 0, -1):
            if any(stop.startswith(text[-length:]) for stop in self._stops):
                return length
        return 0
        # END SOLUTION

    def flush(self) -> str:
        """What was held back, when no more text comes."""
        # BEGIN SOLUTION 7.2
        held, self._held = self._held, ""
        return held
        # END SOLUTION

    # ANCHOR_END: push
