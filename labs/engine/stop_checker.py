# Lab 7, your part: task 7.2. The rest is given.
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
        # TODO 7.2: your code here (the reference: 11 lines).
        raise NotImplementedError(
            "engine task 7.2: not implemented yet; see chapter The engine"
        )

    def _num_undecided(self, text: str) -> int:
        """Length of the longest end of `text` that is the start of a stop string."""
        # TODO 7.2: your code here (the reference: 5 lines).
        raise NotImplementedError(
            "engine task 7.2: not implemented yet; see chapter The engine"
        )

    def flush(self) -> str:
        """What was held back, when no more text comes."""
        # TODO 7.2: your code here (the reference: 2 lines).
        raise NotImplementedError(
            "engine task 7.2: not implemented yet; see chapter The engine"
        )

    # ANCHOR_END: push
