"""Stop strings of requests with `min_tokens`: looked for only behind so many tokens, as in vLLM.

All other requests have lab 7's checker, which knows nothing of it.
"""

from collections.abc import Callable, Sequence

from yaie.core.contracts import StopChecker


def stop_checker(
    make: Callable[[Sequence[str]], StopChecker], stops: Sequence[str], min_tokens: int = 0
) -> StopChecker:
    """What looks for the stop strings of one request. make: makes lab 7's."""
    return LateStopChecker(stops, min_tokens) if stops and min_tokens else make(stops)


class LateStopChecker:
    """See `yaie.core.contracts.StopChecker`. Each `push` is the text of one more token.

    A stop string counts if it ends in the text of a token behind the first `min_tokens`. It may begin
    before, so text that may be its start is held back from the first token on.
    """

    def __init__(self, stops: Sequence[str], min_tokens: int) -> None:
        self._stops = stops
        self._longest = max(map(len, stops))
        self._num_exempt = min_tokens
        self._held = ""

    def push(self, text: str) -> tuple[str, str | None]:
        """(text that is safe to show, the stop string that was found or None)."""
        known = len(self._held)
        self._held += text
        if self._num_exempt:
            self._num_exempt -= 1
        elif (found := self._found(known)) is not None:
            start, stop = found
            shown, self._held = self._held[:start], ""
            return shown, stop
        border = self._border()
        shown, self._held = self._held[:border], self._held[border:]
        return shown, None

    def flush(self) -> str:
        """What was held back, when no more text comes."""
        text, self._held = self._held, ""
        return text

    def _found(self, known: int) -> tuple[int, str] | None:
        """Where the stop string begins that ends first behind `known` characters; the longest of several
        that end together."""
        ends = []
        for stop in self._stops:
            start = self._held.find(stop, max(0, known - len(stop) + 1))
            if start >= 0:
                ends.append((start + len(stop), start, stop))
        return min(ends)[1:] if ends else None

    def _border(self) -> int:
        """Where the text begins that may be the start of a stop string.

        What is held back begins at such a place, so the search goes on from there. A place that will not
        do is shown, and looked at no more: on average a token costs as many looks as it has characters,
        and one.
        """
        held = self._held
        for start in range(max(0, len(held) - self._longest + 1), len(held)):
            tail = held[start:]
            if any(len(tail) < len(stop) and stop.startswith(tail) for stop in self._stops):
                return start
        return len(held)
