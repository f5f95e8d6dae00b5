"""Mutants of the engine, and the tests that notice them: `make mutants MODULE=yaie/engine/step`.

It judges the tests, and so it lies beside them: `yaie` and `grader` know nothing of it. The changes are
those that the graders' self-check makes in the labs (`grader.selfcheck.mutants`), in copies of a warm
process as there (`grader.selfcheck.forking`).

    recording.py     a pytest plugin: which lines of `yaie` each test reaches
    reached.py       keeps what was recorded, by test file, and knows what is out of date
    population.py    all mutants of some modules, a sample of them, and those that are argued
    warm.py          the process whose copies run the tests on a mutant each
    trial.py         which tests run on a mutant, and what came of it
    results.py       the file of results

A mutant is killed by the first test that fails on it and passes without it. `survivors.toml` says of
mutants that live why they may.
"""

import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from tests.mutants.population import SURVIVORS, argued, modules, population
from tests.mutants.reached import Store, copy_of_tree, judged_files
from tests.mutants.results import (
    SURVIVED,
    Results,
    commit,
    entry,
    result_of,
    sources_digest,
    where,
)
from tests.mutants.trial import importers_in, reaching, try_all
from tests.mutants.warm import Warm
from yaie.system.terminal import Terminal

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".mutants"
MOST_ENTRIES = 10
"""For survivors.toml, printed to be filled in."""

out = Terminal()
err = Terminal(stderr=True)


def mutants(
    chosen: Annotated[
        list[str] | None, typer.Argument(help="Modules or folders of yaie, or nothing for all.")
    ] = None,
    sample: Annotated[int, typer.Option(help="Try so many of them; 0 is all.", min=0)] = 0,
    seed: Annotated[int, typer.Option(help="Of the sample.")] = 0,
    tests: Annotated[
        list[str] | None, typer.Option(help="Test files or folders to judge; not given, all.")
    ] = None,
    jobs: Annotated[int, typer.Option(help="At once.", min=1)] = 2,
    seconds: Annotated[float, typer.Option(help="For each mutant.", min=1)] = 120.0,
    to: Annotated[Path | None, typer.Option(help="The file of results.")] = None,
    record: Annotated[
        bool, typer.Option("--record", help="Only record which tests reach which lines.")
    ] = False,
    anew: Annotated[bool, typer.Option("--anew", help="Forget an earlier run's results.")] = False,
) -> None:
    """Change one operator, constant, condition or statement of the engine at a time, and run the tests
    that reach it until one fails. Interrupted, the same command goes on where it was."""
    try:
        run(chosen or ["yaie"], sample, seed, tests or ["tests"], jobs, seconds, to, record, anew)
    except FileNotFoundError as error:
        err.print(Text("Error:", "bold red"), str(error), soft_wrap=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        err.print("Stopped.")
        raise typer.Exit(130) from None


def run(
    names: list[str],
    sample: int,
    seed: int,
    tests: list[str],
    jobs: int,
    seconds: float,
    to: Path | None,
    record: bool,
    anew: bool,
) -> None:
    """See `mutants`. Raises FileNotFoundError for a module or test that is not there."""
    files, judged = modules(ROOT, names), judged_files(ROOT, tests)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=err, transient=True) as bar:
        store = Store(ROOT, CACHE / "reached")
        stale = store.stale(judged)
        if stale:
            task = bar.add_task("test files recorded", total=len(stale))
            store.record(stale, jobs, lambda count: bar.advance(task, count))
            bar.remove_task(task)
        for file in store.without_tests(judged):
            err.print(f"no test of {file} passed when it was recorded", soft_wrap=True)
        if record:
            return
        reached = store.load(judged)
        wanted = population(ROOT, files, sample, seed)
        head = {
            "commit": commit(ROOT),
            "sources": sources_digest(ROOT),
            "modules": names,
            "sample": sample,
            "seed": seed,
            "tests": tests,
            "seconds_each": seconds,
        }
        results = Results(to or default_file(names, sample, seed), head, anew=anew)
        reasons = argued()
        for mutant in wanted:
            if mutant.key in reasons:
                results.add(result_of(mutant, SURVIVED, argued=reasons[mutant.key]), keep=False)
        importers = importers_in(ROOT, modules(ROOT, ["yaie"]))
        own_tests = importers_in(ROOT, judged)
        task = bar.add_task("mutants", total=len(wanted))
        with tempfile.TemporaryDirectory(prefix="yaie-mutants-") as scratch:
            for name in ("pristine", *map(str, range(jobs))):
                copy_of_tree(ROOT, Path(scratch) / name)
            with Warm(Path(scratch), jobs) as warm:
                broken = try_all(
                    wanted,
                    lambda mutant: reaching(mutant, reached, importers, own_tests),
                    warm,
                    results,
                    seconds,
                    lambda count: bar.advance(task, count),
                )
    report(results, broken)
    if results.unargued:
        raise typer.Exit(1)


def default_file(names: list[str], sample: int, seed: int) -> Path:
    name = "+".join(name.removesuffix(".py").strip("/").replace("/", ".") for name in names)
    return CACHE / f"{name}{f'-{sample}-{seed}' if sample else ''}.json"


def report(results: Results, broken: set[str]) -> None:
    """What is to be read on the terminal: the share that was noticed, and what was not."""
    counts = results.counts()
    for test in sorted(broken):
        err.print(f"fails without a mutant, and was left out: {test}", soft_wrap=True)
    if results.unargued:
        argue = f"To kill by a test, or to argue in {SURVIVORS.relative_to(ROOT)}:"
        out.print(f"{argue}\n\n{where(results.unargued)}\n", soft_wrap=True)
    for result in results.unargued[:MOST_ENTRIES]:
        out.print(entry(result) + "\n", soft_wrap=True)
    share = counts["noticed"] / counts["mutants"] if counts["mutants"] else 1.0
    told = ", ".join(f"{number} {name}" for name, number in counts.items() if name != "mutants")
    out.print(f"{share:.1%} of {counts['mutants']} mutants noticed: {told}", soft_wrap=True)
    out.print(f"Kept in {results.path}", soft_wrap=True)


if __name__ == "__main__":
    typer.run(mutants)
