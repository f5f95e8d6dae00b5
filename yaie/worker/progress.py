"""Bars for what a start waits for."""

import sys
from collections.abc import Callable, Iterable, Sequence

Progress = Callable[[Sequence[int]], Iterable[int]]
"""Gives the items back, and shows how far one is."""


def bar(description: str) -> Progress:
    """A bar on stderr that disappears at the end; none where stderr is no terminal."""
    if not sys.stderr.isatty():
        return iter

    def shown(items: Sequence[int]) -> Iterable[int]:
        from yaie.system.terminal import tracked

        return tracked(items, description)

    return shown
