"""How figures are shown and kept: a table for people, JSON for the rest, the machine with both."""

import datetime
import json
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from yaie import __version__
from yaie.cli.console import err, out, show_table
from yaie.core.errors import ConfigError
from yaie.system.files import cannot_write, write_whole

ROOT = Path(__file__).resolve().parents[2]


def machine() -> dict[str, Any]:
    """What the figures were measured on, and with what."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "cpu": _cpu_name(),
        "threads": torch.get_num_threads(),
        "gpu": gpu,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": _version("triton"),
        "transformers": _version("transformers"),
        "yaie": __version__,
        "git": _git(),
    }


def command_line() -> str:
    """What was typed, for the record."""
    return shlex.join(["yaie", *sys.argv[1:]])


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@cache
def _git() -> dict[str, Any] | None:
    """Which commit of ours runs, and whether anything differs from it; None outside a checkout."""

    def git(*arguments: str) -> str:
        ran = subprocess.run(
            ["git", "-C", str(ROOT), *arguments],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
        return ran.stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")).resolve() != ROOT:
            return None  # a package installed somewhere inside of another project
        # What earlier runs of this checkout have recorded is not code.
        changed = git("status", "--porcelain", "--", ".", ":(exclude)book/evidence")
        return {"commit": git("rev-parse", "HEAD"), "dirty": bool(changed)}
    except (OSError, subprocess.SubprocessError):
        return None


def show(
    title: str,
    columns: Iterable[str],
    rows: Iterable[Iterable[Any]],
    notes: Iterable[str | Text] = (),
) -> None:
    """Print a table with the machine under it."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right")
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    show_table(table)
    for note in notes:
        out.print(note)
    here = machine()
    device = here["gpu"] or f"{here['threads']} threads of {here['cpu']}"
    out.print(f"{device}, torch {here['torch']}, YAIE {here['yaie']}", style="dim")


_NUMBERS = re.compile(r"\[[-+.\deE,\s]+\]")
"""A list of numbers in JSON, which belongs on one line."""


def save(path: str | None, figures: dict[str, Any]) -> None:
    """Write the figures, the machine and the day to a file, if one was asked for. Raises ConfigError."""
    if path is not None:
        today = datetime.date.today().isoformat()
        text = as_json({"machine": machine(), "date": today, **figures})
        try:
            write_whole(Path(path), text)
        except OSError as error:
            raise ConfigError(cannot_write(path, error), param="json") from None


def as_json(figures: dict[str, Any]) -> str:
    """Figures as they are kept: indented, but lists of numbers."""
    text = json.dumps(figures, indent=2)
    return _NUMBERS.sub(lambda numbers: " ".join(numbers[0].split()), text) + "\n"


def progress() -> Progress:
    """A bar on stderr that disappears when the work is done; nothing where that is no terminal."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    return Progress(*columns, console=err, transient=True, disable=not err.is_terminal)


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
