"""Lines of styled text.

Unlike tables and panels they leave no spaces at their ends, so that a report in a file is as good as
one on a terminal.
"""

import re
import textwrap
from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from yaie.system.terminal import escaped

WIDEST_PROSE = 100
_CODES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
"""What a program sends to a terminal for colours, or to move the cursor."""


def clean(text: str) -> str:
    """With control characters as Python writes them: a value may hold some, and a terminal would obey
    them or show nothing."""
    return escaped(text).expandtabs(4)


def without_codes(text: str) -> str:
    """What was printed for a terminal, without its colours."""
    return _CODES.sub("", text)


def prose(text: str, style: str = "", *, width: int, indent: int = 0) -> list[Text]:
    """Sentences, wrapped between words."""
    room = max(20, min(width, WIDEST_PROSE) - indent)
    lines = [
        line
        for paragraph in clean(text).splitlines() or [""]
        for line in textwrap.wrap(paragraph, room, break_on_hyphens=False) or [""]
    ]
    return verbatim("\n".join(lines), style, indent=indent)


def verbatim(text: str, style: str = "", *, indent: int = 0) -> list[Text]:
    """Lines as they are: code, a script of calls, a state."""
    rows = (line.rstrip() for line in clean(text).split("\n"))
    return [Text(" " * indent + line if line else "", style=style) for line in rows]


def folded(line: str, room: int) -> list[str]:
    """A call that is wider than the room, an argument a line; what it gave, a comment, below it. Still
    one statement of Python, if it was one."""
    if len(line) <= room:
        return [line]
    call, mark, gave = line.partition("  # ")
    below = [f"    # {gave}"] if mark else []
    begin = call.find("(")
    if len(call) <= room or begin < 0 or not call.endswith(")"):
        return [call, *below]
    arguments = _split_at_commas(call[begin + 1 : -1])
    return [call[: begin + 1], *(f"    {argument}," for argument in arguments), ")", *below]


def _split_at_commas(text: str) -> list[str]:
    """At those that stand in no brackets and in no quotes."""
    pieces, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        depth += (character in "([{") - (character in ")]}") if not quote else 0
        if character == "," and not depth and not quote:
            pieces.append("")
        else:
            pieces[-1] += character
    return [piece.strip() for piece in pieces if piece.strip()]


def one_line(text: str, *, width: int) -> str:
    """The first line, cut to the width."""
    first = clean(text).split("\n", 1)[0]
    return first if len(first) <= width else f"{first[: width - 1].rstrip()}…"


def columns(
    rows: Iterable[list[tuple[str, str]]], *, right: frozenset[int], gap: int = 2
) -> list[Text]:
    """Rows of (text, style), each column as wide as its widest text. right: columns set flush right."""
    table = list(rows)
    widths = [max(len(text) for text, _ in column) for column in zip(*table, strict=True)]
    lines = []
    for row in table:
        line = Text()
        for index, ((text, style), width) in enumerate(zip(row, widths, strict=True)):
            aligned = text.rjust(width) if index in right else text.ljust(width)
            line.append(" " * gap if index else "").append(aligned, style=style)
        line.rstrip()
        lines.append(line)
    return lines


def show(console: Console, lines: Iterable[Text]) -> None:
    """Print; what is too long is the terminal's to wrap."""
    for line in lines:
        console.print(line, soft_wrap=True)
