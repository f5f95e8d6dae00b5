"""`python -m grader habits`."""

import os
from functools import partial
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from yaie.core.errors import ConfigError
from yaie.curriculum.manifest import load_curriculum
from yaie.system.terminal import Terminal

out = Terminal()
err = Terminal(stderr=True)


def habits(
    labs: Annotated[list[str] | None, typer.Argument(help="Labs, or nothing for all.")] = None,
    jobs: Annotated[int, typer.Option(help="At once; 0 is one for each core.", min=0)] = 0,
    every: Annotated[int, typer.Option(help="Grade each n-th habit alone.", min=1)] = 1,
    write: Annotated[bool, typer.Option(help="Keep the figures in grader/HABITS.md.")] = False,
) -> None:
    """Grade versions of the reference as people write them, each by its own task's tests alone."""
    from grader.selfcheck.habits import habits_of
    from grader.selfcheck.habits.figures import show
    from grader.selfcheck.habits.figures import write as keep
    from grader.selfcheck.habits.proof import prove
    from grader.selfcheck.variants import reference_folder

    if write and every > 1:
        raise ConfigError("--write keeps figures of all habits: no --every")
    curriculum = load_curriculum()
    chosen = [curriculum[key] for key in labs] if labs else list(curriculum.labs)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    found = []
    with Progress(*columns, TimeElapsedColumn(), console=err, transient=True) as bar:
        for lab in chosen:
            total = len(list(habits_of(reference_folder(lab), lab))[::every])
            if total:
                advance = partial(bar.advance, bar.add_task(lab.key, total=total))
                found.append(prove(lab, jobs or os.cpu_count() or 1, advance, step=every))
    show(out, found)
    if write:
        keep(found, curriculum)
    if any(each.unargued or each.gone or each.outdated for each in found):
        raise typer.Exit(1)
