"""Breaks lines between words as an answer streams in: a terminal breaks them where it is full."""

import re
from collections.abc import Callable

from rich.cells import cell_len

_WIDE = (
    "\u1100-\u115f\u2e80-\u9fff\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60"
    "\U0001f300-\U0001faff\U00020000-\U0003fffd"
)
_PIECES = re.compile(rf"\n|[^\S\n]+|[{_WIDE}]|[^\s{_WIDE}]+")
TAB = 4


class WordWrap:
    """Writes what it is fed, word by word. A word is written once its end has come, because only then is
    it known whether it fits the line. Scripts without spaces may break after each wide character."""

    def __init__(self, write: Callable[[str], None], width: int | None) -> None:
        """width: of a line, in cells; None writes everything as it comes."""
        self._write = write
        self._width = width
        self._column = 0
        self._space = ""
        self._word = ""
        self._is_cut = False  # what has been written ends in the middle of a word that fits no line

    def feed(self, text: str) -> None:
        """More of the text, cut anywhere."""
        if self._width is None:
            self._write(text)
            return
        for piece in _PIECES.findall(text):
            if piece == "\n":
                self.end()
                self._break()
            elif piece.isspace():
                self.end()
                self._space += piece.expandtabs(TAB)
            elif re.match(f"[{_WIDE}]", piece):
                self.end()
                self._word = piece
                self.end()
            else:
                self._word += piece
                if self._is_cut or cell_len(self._word) > self._width:
                    self._flush()
                    self._is_cut = True

    def end(self) -> None:
        """The word is complete."""
        self._flush()
        self._is_cut = False

    def _flush(self) -> None:
        if not self._word or self._width is None:
            return
        cells = len(self._space) + cell_len(self._word)
        if self._column and self._column + cells > self._width and not self._is_cut:
            self._break()
            cells = cell_len(self._word)
        self._column = (self._column + cells - 1) % self._width + 1
        self._write(self._space + self._word)
        self._space = self._word = ""

    def _break(self) -> None:
        """A new line, which begins without the blanks that ended the last one."""
        self._write("\n")
        self._column, self._space = 0, ""
