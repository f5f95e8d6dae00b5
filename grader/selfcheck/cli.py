"""`python -m grader selfcheck`."""

import os
from functools import partial
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from yaie.core.curriculum import load_curriculum

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def selfcheck(
    labs: Annotated[list[str] | None, typer.Argument(help="Labs, or nothing for all.")] = None,
    jobs: Annotated[int, typer.Option(help="At once; 0 is one for each core.")] = 0,
    mutants: Annotated[bool, typer.Option(help="Grade mutants of the reference too.")] = True,
    write: Annotated[bool, typer.Option(help="Keep the figures in grader/SELFCHECK.md.")] = False,
) -> None:
    """Prove the graders: stubs, seeds, known mistakes, other right designs, mutants, hints."""
    from grader.selfcheck.checks import check_lab, num_submissions
    from grader.selfcheck.report import print_problems, print_table, write_figures

    curriculum = load_curriculum()
    chosen = [curriculum[key] for key in labs] if labs else list(curriculum.labs)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    checks = []
    with Progress(*columns, TimeElapsedColumn(), console=err, transient=True) as bar:
        for lab in chosen:
            total = num_submissions(lab, mutants)
            shown = bar.add_task(lab.key, total=total)
            advance = partial(bar.advance, shown)
            checks.append(check_lab(lab, jobs or os.cpu_count() or 1, mutants, advance))
            if not err.is_terminal:
                err.print(f"{lab.key}: {total} submissions, {checks[-1].seconds:.0f} s")
    print_problems(out, checks)
    print_table(out, checks)
    if write:
        write_figures(checks)
    if any(check.problems for check in checks):
        raise typer.Exit(1)
