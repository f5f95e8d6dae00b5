"""How the command line speaks: results on stdout, everything else on stderr, colour on a terminal."""

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from yaie.core.errors import YaieError

if TYPE_CHECKING:
    from yaie.engine.facts import EngineFacts
    from yaie.parts import Part

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

_TERMINAL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def say(text: str) -> None:
    """A line of plain text: brackets are no markup, and long lines are left to the terminal."""
    out.print(text, markup=False, soft_wrap=True)


def show_error(error: YaieError) -> None:
    """One paragraph, in red where colours show."""
    err.print(f"[bold red]Error:[/] {escape(error.message)}", soft_wrap=True)


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
    """The table on stderr, out of the way of results. brief: one line if none of the parts is yours."""
    if not brief or any(part.is_yours for part in parts):
        err.print(parts_table(parts))
        return
    counts = ", ".join(f"{whose} {reason}" for reason, whose in _by_reason(parts).items())
    err.print(f"[dim]All parts are the reference: {escape(counts)}.[/]", soft_wrap=True)


def show_backend(facts: "EngineFacts") -> None:
    """What the kernels are written in, on stderr, if there is something to know about it."""
    if facts.backend_note:
        note = f"Backend {facts.backend}: {escape(facts.backend_note)}."
        err.print(f"[yellow]{note}[/]", soft_wrap=True)
    if facts.decode_note:
        err.print(f"[dim]{escape(facts.decode_note.capitalize())}.[/]", soft_wrap=True)


def _by_reason(parts: Sequence["Part"]) -> dict[str, str]:
    """By reason, how many parts have it; where it counts tasks itself, which part."""
    reasons = Counter(part.reason for part in parts)
    named = {part.reason: f"{part.lab}" for part in parts if part.reason[0].isdigit()}
    return {reason: named.get(reason, str(count)) for reason, count in reasons.items()}


def state_dir() -> Path:
    """Where history and the last model are kept; made if missing."""
    base = os.environ.get("XDG_STATE_HOME") or os.environ.get("LOCALAPPDATA")
    folder = (Path(base) if base else Path.home() / ".local" / "state") / "yaie"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def printable(text: str) -> str:
    """Text without control characters: a model must not move the cursor or change the colours."""
    return _TERMINAL.sub("", text)
