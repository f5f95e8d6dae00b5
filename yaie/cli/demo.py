"""`yaie lab demo`: what a finished part changes, beside the engine without it."""

import logging
import os
import textwrap
from typing import Annotated

import typer
from rich.table import Table

from yaie.cli.console import out, say, show_table
from yaie.core.errors import ConfigError, PartError
from yaie.curriculum.blame import line_in, summarize
from yaie.curriculum.manifest import Lab, load_curriculum
from yaie.demos.shown import Cell, Shown
from yaie.parts import Part, by_progress, load_part

WIDEST = 80


def demo(
    lab: Annotated[str, typer.Argument(help="For example radix_tree.", show_default=False)],
    mine: Annotated[
        str,
        typer.Option(
            envvar="YAIE_MINE",
            help="Whose part: auto (yours once all its tasks have passed), all, none, or lab names.",
        ),
    ] = "auto",
) -> None:
    """Show a lab's part at work, beside the engine without it."""
    labs = load_curriculum()
    if lab not in labs.keys:
        raise ConfigError(f"there is no lab {lab!r}; choose from {', '.join(labs.keys)}")
    if "triton-interpreter" in labs[lab].verify:  # read when a kernel is defined
        os.environ.setdefault("TRITON_INTERPRET", "1")
    part = load_part(lab, mine)
    _paragraph(headline(labs[lab], part))
    from yaie.demos.table import show

    # What a part raises is told in one sentence; the engine logs its whole traceback besides.
    logging.disable(logging.ERROR)
    try:
        shown = show(part)
    except (Exception, SystemExit) as error:
        if not part.is_yours:
            raise
        _paragraph(failure(part, error))
        raise typer.Exit(1) from None
    finally:
        logging.disable(logging.NOTSET)
    print_shown(shown)


def headline(lab: Lab, part: Part) -> str:
    """Whose part is shown, and how to finish one's own."""
    if part.is_yours:
        return f"Lab {lab.number}, {lab.subject}: your {lab.key}."
    line = f"Lab {lab.number}, {lab.subject}: the reference's {lab.key}."
    _, reason = by_progress(lab)
    if part.reason == reason:  # and not because another flag says so
        line += f" Yours is not finished yet ({reason}): make grade LAB={lab.key}"
    return line


def failure(part: Part, error: BaseException) -> str:
    """What a part of the learner's raised, where, and what to do."""
    if isinstance(error, PartError):
        said = error.message
    else:
        where = line_in(part.folder, error)
        said = f"your part {part.lab} failed: {summarize(error)}" + (f" ({where})" if where else "")
    return f"{said[:1].upper()}{said[1:].rstrip('.')}. To see why: make grade LAB={part.lab}"


def print_shown(shown: Shown) -> None:
    """The work, the numbers side by side, the picture, and the difference in a sentence."""
    _paragraph(shown.what)
    say("")
    table = Table(box=None, padding=(0, 2), pad_edge=False, header_style="dim")
    table.add_column("")
    for head in shown.heads:
        table.add_column(head, justify="right")
    for row in shown.rows:
        table.add_row(row.name, *map(_written, row.cells))
    show_table(table)
    say("")
    if shown.picture:
        for line in shown.picture:
            say(line)
        say("")
    _paragraph(shown.so, "bold")


def _written(cell: Cell) -> str:
    if isinstance(cell, str):
        return cell
    return f"{cell:,.1f}" if isinstance(cell, float) else f"{cell:,}"


def _paragraph(text: str, style: str = "") -> None:
    for line in textwrap.wrap(text, min(WIDEST, out.width)):
        out.print(line, style=style, soft_wrap=True)
