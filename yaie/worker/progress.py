"""Bars for what a start waits for."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

Progress = Callable[[Sequence[int]], Iterable[int]]
"""Gives the items back, and shows how far one is."""


def bar(description: str) -> Progress:
    """A bar on stderr that disappears at the end; none where stderr is no terminal."""
    if not sys.stderr.isatty():
        return iter

    def tracked(items: Sequence[int]) -> Iterator[int]:
        from rich.console import Console
        from rich.progress import track

        yield from track(items, description, console=Console(stderr=True), transient=True)

    return tracked
