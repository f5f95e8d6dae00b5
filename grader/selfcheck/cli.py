"""`python -m grader selfcheck`."""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from yaie.core.errors import ConfigError
from yaie.curriculum.manifest import Lab, load_curriculum
from yaie.system.terminal import Terminal

if TYPE_CHECKING:
    from grader.selfcheck.labcheck import LabCheck

out = Terminal()
err = Terminal(stderr=True)


def selfcheck(
    labs: Annotated[list[str] | None, typer.Argument(help="Labs, or nothing for all.")] = None,
    jobs: Annotated[int, typer.Option(help="At once; 0 is one for each core.")] = 0,
    seeds: Annotated[int, typer.Option(help="For the reference.", min=1)] = 5,
    mutants: Annotated[bool, typer.Option(help="Grade mutants of the reference too.")] = True,
    only_layout: Annotated[
        bool, typer.Option(help="Of the mutants, only those of strides, dtypes and arguments.")
    ] = False,
    sample: Annotated[
        int,
        typer.Option(
            help="Known mistakes and right designs to grade of each lab; 0 is all.", min=0
        ),
    ] = 0,
    path: Annotated[
        bool, typer.Option(help="Walk through each lab task by task; never with --sample.")
    ] = True,
    recorded: Annotated[
        bool, typer.Option(help="Mutants only of labs that have changed since they were proven.")
    ] = False,
    write: Annotated[
        bool, typer.Option(help="Keep what was proven, and the figures in grader/SELFCHECK.md.")
    ] = False,
) -> None:
    """Prove the graders: stubs, seeds, a learner's path, mistakes, other designs, mutants, hints."""
    from grader.selfcheck.checks import check_lab, num_submissions
    from grader.selfcheck.plan import Plan
    from grader.selfcheck.proof import digest_of, read_proofs
    from grader.selfcheck.report import keep, print_problems, print_table

    if write and (recorded or sample or only_layout or not mutants or not path):
        raise ConfigError(
            "--write keeps what was proven in full: no --recorded, --sample, --only-layout, "
            "--no-mutants or --no-path"
        )
    curriculum = load_curriculum()
    chosen = [curriculum[key] for key in labs] if labs else list(curriculum.labs)
    proofs = read_proofs() if recorded else {}
    known = {
        lab.key: proof
        for lab in chosen
        if (proof := proofs.get(lab.key)) and proof.digest == digest_of(lab)
    }
    plan = Plan(seeds, mutants, sample, known, only_layout, path)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    jobs = jobs or os.cpu_count() or 1
    # Of a sample a lab's start takes longest, and that is one process: several labs at once, a job each.
    at_once = min(jobs, len(chosen)) if sample else 1
    with Progress(*columns, TimeElapsedColumn(), console=err, transient=True) as bar:

        def check(lab: Lab) -> "LabCheck":
            total = num_submissions(lab, plan)
            shown = bar.add_task(lab.key, total=total)
            found = check_lab(lab, jobs // at_once, plan, partial(bar.advance, shown))
            if not err.is_terminal:
                err.print(f"{lab.key}: {total} submissions, {found.seconds:.0f} s")
            return found

        with ThreadPoolExecutor(at_once) as pool:
            checks = list(pool.map(check, chosen))
    print_problems(out, checks)
    print_table(out, checks)
    if write:
        keep(checks, curriculum)
    if any(check.problems for check in checks):
        raise typer.Exit(1)
