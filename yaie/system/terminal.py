"""The console that all terminal views print on: whatever a text says, it is only text.

Clients, models, checkpoints and file systems choose names, and any of them may hold `[/x]`, which
rich takes for markup and refuses, or codes that clear the screen. So markup and emoji codes are off
here: style comes from `style=` and from `rich.text.Text`. tests/test_markup.py keeps other consoles out.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

Item = TypeVar("Item")

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters, but for line breaks and tabs."""


def printable(text: str) -> str:
    """Text without control characters: a model must not move the cursor or change the colours."""
    return _CONTROL.sub("", text)


def escaped(text: str) -> str:
    """Text with its control characters as they are written in Python."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class Terminal(Console):
    """rich's console without markup, emoji codes and highlights, on stdout if nothing else is named.

    A string shows its control characters escaped, in a table's cell, too. In a `Text`, whose width is
    measured before, they are left out.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text: str, **how: Any) -> Text:
        """As rich does, once control characters are escaped."""
        return super().render_str(escaped(text), **how)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """As rich does, without the control characters of any text. rich's own codes are marked."""
        for segment in super().render(renderable, options):
            if segment.control is None and _CONTROL.search(segment.text):
                yield Segment(printable(segment.text), segment.style)
            else:
                yield segment


def tracked(
    items: Iterable[Item], description: str, total: int | None = None, *, shown: bool = True
) -> Iterator[Item]:
    """The items, with a bar on stderr that disappears after the last one.

    total: how many there are, of items without a length. shown: False gives just the items.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    words = TextColumn("{task.description}", markup=False)
    columns = (words, BarColumn(), TimeRemainingColumn())
    console = Terminal(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not shown) as bar:
        yield from bar.track(items, total=total, description=description)
