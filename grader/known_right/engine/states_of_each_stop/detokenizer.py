"""Another right detokenizer: a value that never changes, and a function from one to the next.

What the reference keeps in four fields is one named tuple here. Undecided characters are counted in a
loop from the end, and a step is a chain of cases that each return the next value with the text.
"""

from collections.abc import Callable
from typing import NamedTuple

INCOMPLETE = "\ufffd"
MOST_UNDECIDED = 3
MOST_TOKENS = 16
FEWEST_TOKENS = 12

Decode = Callable[[list[int]], str]


class Window(NamedTuple):
    """context: tokens that were shown and are decoded again. new: tokens behind them. shown: the text of
    all of them that was given out."""

    context: tuple[int, ...] = ()
    new: tuple[int, ...] = ()
    shown: str = ""

    @property
    def ids(self) -> list[int]:
        return [*self.context, *self.new]


def undecided(text: str) -> int:
    """Characters at the end that may be halves."""
    count = 0
    while count < min(MOST_UNDECIDED, len(text)) and text[-1 - count] == INCOMPLETE:
        count += 1
    return count


def pushed(window: Window, token_id: int, decode: Decode) -> tuple[Window, str]:
    """The next window, and the text that became final."""
    grown = window._replace(new=(*window.new, token_id))
    text = decode(grown.ids)
    if not text.startswith(grown.shown):
        grown = Window((), grown.new, "")
        text = decode(grown.ids)
    open_end = undecided(text)
    final = text[len(grown.shown) : len(text) - open_end]
    if final and not open_end:
        return Window(grown.new, (), decode(list(grown.new))), final
    if text and not decode([token_id]):
        return Window(grown.context, grown.new[:-1], grown.shown), final
    if len(grown.ids) > MOST_TOKENS:
        kept = tuple(grown.ids[-FEWEST_TOKENS:])
        whole = decode(list(kept))
        return Window(kept, (), whole[: len(whole) - open_end]), final
    return grown._replace(shown=grown.shown + final), final


class Detokenizer:
    """See `yaie.core.contracts.Detokenizer`."""

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._window = Window()

    def push(self, token_id: int) -> str:
        """The text that this token makes final; "" while a character is incomplete."""
        self._window, text = pushed(self._window, token_id, self._decode)
        return text

    def flush(self) -> str:
        """The end of the text."""
        text, shown = self._decode(self._window.ids), self._window.shown
        self._window = Window()
        return text.removeprefix(shown)
