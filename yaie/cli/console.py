"""How the command line speaks: results on stdout, everything else on stderr, colour on a terminal."""

import errno
import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from yaie.core.errors import InvalidRequestError, YaieError
from yaie.system.interrupt import end_interrupted, is_interrupted
from yaie.system.terminal import Terminal, escaped

if TYPE_CHECKING:
    from yaie.engine.info import EngineInfo
    from yaie.parts import Part

out = Terminal()
err = Terminal(stderr=True)

NARROW = 72
"""Characters: a terminal with fewer of them is none that tables are made for."""


def heed_interrupt() -> None:
    """End here if Ctrl-C has come: an import that it tore may have been caught, and what a command would
    say from then on be wrong."""
    if is_interrupted():
        end_interrupted()


def say(text: str) -> None:
    """A line of plain text; long lines are left to the terminal."""
    heed_interrupt()
    out.print(text, soft_wrap=True)


def note(text: str, style: str = "dim") -> None:
    """A line on stderr, out of the way of results."""
    heed_interrupt()
    err.print(text, style=style, soft_wrap=True)


class _Warning(logging.Formatter):
    """A warning of the engine, for a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return escaped(super().format(record))


def escape_warnings() -> None:
    """What is logged where no log is open goes to stderr as it is: from now on it is only text there."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_Warning())


class _Held(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@contextmanager
def warnings_held() -> Iterator[None]:
    """What the engine warns of meanwhile is shown behind it, and not in the middle of an answer."""
    held, root = _Held(), logging.getLogger()
    root.addHandler(held)
    try:
        yield
    finally:
        root.removeHandler(held)
        for record in held.records:
            note(f"({escaped(record.getMessage())})")


def show_error(error: YaieError) -> None:
    """One paragraph, in red where colours show."""
    err.print(Text("Error:", "bold red"), error.message, soft_wrap=True)


def show_table(table: Table, console: Console | None = None) -> None:
    """A table, or on a narrow terminal that it does not fit each row as lines of its own: columns that
    are squeezed into 40 characters show no word whole. console: standard output, if none is named."""
    console = console or out
    endless = console.options.update_width(10_000)
    if console.width >= NARROW or console.measure(table, options=endless).maximum <= console.width:
        console.print(table)
        return
    if table.title:
        console.print(table.title, style="bold")
    for cells in zip(*(column.cells for column in table.columns), strict=True):
        lines = Table.grid(padding=(0, 1))
        lines.add_column(style="dim")
        lines.add_column(overflow="fold")
        for column, cell in zip(table.columns, cells, strict=True):
            if cell:
                lines.add_row(column.header, cell)
        console.print(lines, "", sep="")


def parts_table(parts: Iterable["Part"]) -> Table:
    """Whose parts run, and why. Yours stand out."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("part", "whose", "from"):
        table.add_column(name, no_wrap=True)
    table.add_column("why")
    for part in parts:
        style = "bold green" if part.is_yours else ""
        table.add_row(part.lab, part.owner, part.module, part.reason, style=style)
    return table


def show_parts(parts: Sequence["Part"], *, brief: bool = False) -> None:
    """The table on stderr, out of the way of results. brief: one line if none of the parts is yours,
    and one more for your labs that this run has no use for."""
    if not brief or any(part.is_yours for part in parts):
        show_table(parts_table(parts), err)
        return
    from yaie.parts import idle_labs

    counts = ", ".join(f"{whose} {reason}" for reason, whose in _by_reason(parts).items())
    idle = idle_labs(parts)
    note(f"All parts {'in this run ' if idle else ''}are the reference: {counts}.")
    if idle:
        uses = ", ".join(f"{lab} (with {use})" for lab, use in idle.items())
        note(f"Complete, and not used in this run: {uses}.")


def show_backend(info: "EngineInfo") -> None:
    """What the kernels are written in, on stderr, if there is something to know about it. Attention in
    C++ is named above a table, in which lab 5 is then missing."""
    is_usual = info.backend == "cpu" and not any(part.is_yours for part in info.parts)
    if info.backend_note and not is_usual:
        style = "yellow" if "slow" in info.backend_note else "dim"
        note(f"Backend {info.backend}: {info.backend_note}.", style)
    if info.limits:
        note(f"{info.model_name} is served as {info.limits}.")
    if info.dtype_note:
        note(f"Computed in {info.dtype_note}.")
    if info.ranks:
        note(f"On {info.ranks}.")
    if info.decode_note:
        note(f"{info.decode_note.capitalize()}.")


def _by_reason(parts: Sequence["Part"]) -> dict[str, str]:
    """By reason, how many parts have it; where it counts tasks itself, which part."""
    reasons = Counter(part.reason for part in parts)
    named = {part.reason: f"{part.lab}" for part in parts if part.reason[0].isdigit()}
    return {reason: named.get(reason, str(count)) for reason, count in reasons.items()}


def state_dir() -> Path:
    """Where history and the last model are kept; made if missing. Raises OSError."""
    base = os.environ.get("XDG_STATE_HOME") or os.environ.get("LOCALAPPDATA")
    try:
        folder = (Path(base) if base else Path.home() / ".local" / "state") / "yaie"
    except RuntimeError:  # a user without an entry and without HOME, as in many a container
        raise FileNotFoundError(errno.ENOENT, "there is no home folder", "~") from None
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def characters(text: str, what: str) -> str:
    """An argument or a line of stdin as its writer meant it. Python hands on bytes that the locale does
    not know as halves of surrogate pairs: all of é, say, where the locale is ASCII.

    what: names the text. Raises InvalidRequestError if it is not UTF-8.
    """
    try:
        data = text.encode("utf-8", "surrogateescape")
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequestError(
            f"{what} is not UTF-8 (byte {data[error.start]:#04x} at position {error.start}). Convert it "
            "first, for example with: iconv -f latin1 -t utf-8"
        ) from None
