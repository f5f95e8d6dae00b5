"""The self-check's figures, on the terminal and in `grader/SELFCHECK.md`."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from grader.selfcheck.labcheck import LabCheck
from grader.selfcheck.proof import RECORD, Proof, digest_of, read_proofs, write_proofs
from grader.selfcheck.variants import GRADER
from yaie.core.files import write_whole
from yaie.curriculum.manifest import Curriculum

HEADS = (
    "lab",
    "tasks",
    "tests",
    "stub",
    "seeds",
    "path",
    "wrong",
    "right",
    "mutants",
    "layout",
    "grade",
    "check",
)
FIGURES = GRADER / "SELFCHECK.md"
LEGEND = """\
stub: points of an unwritten lab, which hears only "not implemented yet". seeds: under which the
reference earns full marks. path: tasks that pass, and lose nothing, when the reference is typed in
task by task; after each one the report's next step is the next task. wrong: known mistakes, each caught
by the task that must catch it, in words that name it. right: other designs that are right, and pass.
mutants: how many were killed of those that change one operator, constant, condition or statement of the
reference. layout: the same of those that mix up strides, narrow a dtype or swap arguments of a kernel.
grade, check: seconds on one machine, a hint only."""
TAKEN = (
    "*: as recorded in grader/selfcheck.sha256; nothing that these mutants depend on has changed."
)


def rows(checks: Sequence[LabCheck]) -> list[tuple[str, ...]]:
    """One row a lab, and their sum."""
    found = [_row(check) for check in checks]
    killed, mutants = sum(c.killed for c in checks), sum(c.num_mutants for c in checks)
    layout = sum(c.layout_killed for c in checks), sum(c.num_layout for c in checks)
    found.append(
        (
            "all",
            str(sum(len(c.lab.tasks) for c in checks)),
            str(sum(c.num_tests for c in checks)),
            "",
            "",
            f"{sum(c.walked for c in checks)}/{sum(len(c.lab.tasks) for c in checks)}",
            f"{sum(c.wrong for c in checks)}/{sum(c.num_wrong for c in checks)}",
            f"{sum(c.right for c in checks)}/{sum(c.num_right for c in checks)}",
            _share(killed, mutants),
            _share(*layout),
            f"{sum(c.grade_seconds for c in checks):.1f}",
            f"{sum(c.seconds for c in checks):.0f}",
        )
    )
    return found


def _row(check: LabCheck) -> tuple[str, ...]:
    stub_holds = not any(problem.startswith("stub") for problem in check.problems)
    return (
        check.lab.key,
        str(len(check.lab.tasks)),
        str(check.num_tests),
        "0" if stub_holds else "wrong",
        f"{check.seeds}/{check.num_seeds}",
        f"{check.walked}/{len(check.lab.tasks)}",
        f"{check.wrong}/{check.num_wrong}",
        f"{check.right}/{check.num_right}",
        _share(check.killed, check.num_mutants) + "*" * check.is_recorded,
        _layout_of(check),
        f"{check.grade_seconds:.1f}",
        f"{check.seconds:.0f}",
    )


def _layout_of(check: LabCheck) -> str:
    if check.num_mutants and not check.num_layout:
        return "none"
    return _share(check.layout_killed, check.num_layout) + "*" * check.is_recorded


def _share(killed: int, mutants: int) -> str:
    return f"{killed}/{mutants} {killed / mutants:.1%}" if mutants else "not run"


def print_table(console: Console, checks: Sequence[LabCheck]) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for head in HEADS:
        table.add_column(head, justify="left" if head == "lab" else "right", no_wrap=True)
    for row in rows(checks):
        table.add_row(*row)
    console.print(table)
    if any(check.is_recorded for check in checks):
        console.print(TAKEN, soft_wrap=True)


def print_problems(console: Console, checks: Sequence[LabCheck]) -> None:
    """What does not hold; for survivors without a reason, the entry to fill in."""
    for check in checks:
        for problem in check.problems:
            console.print(f"{check.lab.key}: {problem}", style="red", markup=False, soft_wrap=True)
        missing = [mutant for mutant, reason in check.survivors if not reason]
        if missing:
            console.print(f"\nTo kill by a test, or to argue in survivors/{check.lab.key}.toml:\n")
        for mutant in missing:
            entry = (
                f"[[survivor]]\nfile = {_toml(mutant.file)}\nfunction = {_toml(mutant.function)}\n"
                f"line = {_toml(mutant.line)}\nchange = {_toml(mutant.change)}\nreason = ''\n"
            )
            console.print(entry, markup=False, soft_wrap=True)


def _toml(text: str) -> str:
    """A TOML string as is; a line of code may hold either quote, seldom three of one."""
    return f"'{text}'" if "'" not in text else f"'''{text}'''"


def keep(checks: Sequence[LabCheck], curriculum: Curriculum) -> None:
    """Record what was proven of these labs, and the figures if these are all labs.

    A lab with problems has proven nothing, and loses the record that it had.
    """
    proofs = read_proofs()
    for check in checks:
        proofs.pop(check.lab.key, None)
        if not check.problems:
            digest = digest_of(check.lab)
            layout = check.layout_killed, check.num_layout
            proofs[check.lab.key] = Proof(digest, check.killed, check.num_mutants, *layout)
    write_proofs({key: proofs[key] for key in curriculum.keys if key in proofs}, RECORD)
    if len(checks) == len(curriculum.labs):
        write_figures(checks)


def write_figures(checks: Sequence[LabCheck], path: Path = FIGURES) -> None:
    """Keep the table, and every survivor with its reason, in the repository."""
    lines = [
        "# What the graders are held to",
        "",
        "Written by `make selfcheck ARGS=--write`; `make selfcheck` checks it all again.",
        "",
        LEGEND,
        "",
        f"| {' | '.join(HEADS)} |",
        f"|{'|'.join('---' for _ in HEADS)}|",
        *(f"| {' | '.join(row)} |" for row in rows(checks)),
        "",
        "## Mutants that live",
        "",
    ]
    for check in checks:
        if not check.survivors:
            continue
        lines += [f"### {check.lab.title}", ""]
        for mutant, reason in sorted(check.survivors, key=lambda pair: pair[0].key):
            where = f"`{mutant.file}`, `{mutant.function}`"
            lines.append(f"- {where}: `` {mutant.line} ``, {mutant.change}. {reason}")
        lines.append("")
    write_whole(path, "\n".join(lines).rstrip() + "\n")
