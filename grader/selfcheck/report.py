"""The self-check's figures, on the terminal and in `grader/SELFCHECK.md`."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from grader.selfcheck.labcheck import LabCheck
from grader.selfcheck.proof import RECORD, Proof, digest_of, read_proofs, write_proofs
from grader.selfcheck.variants import GRADER
from yaie.curriculum.manifest import Curriculum
from yaie.system.files import write_whole
from yaie.system.locks import locked

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
reference. layout: the same of those that mix up strides, narrow a dtype or swap arguments of a kernel;
without those that are argued to be equivalent, as a cast that PyTorch would make.
grade, check: seconds on one machine, a hint only."""
TAKEN = (
    "*: as recorded in grader/selfcheck.sha256; nothing that these mutants depend on has changed."
)


Row = tuple[str, ...]


def rows(checks: Sequence[LabCheck]) -> list[Row]:
    """One row a lab, and their sum."""
    found = [_row(check) for check in checks]
    return [*found, _sum(found)]


def _sum(found: Sequence[Row]) -> Row:
    cells = zip(HEADS[1:], zip(*(row[1:] for row in found), strict=True), strict=True)
    return "all", *(_total(head, column) for head, column in cells)


def _total(head: str, column: Sequence[str]) -> str:
    """Of a column: numbers add up, shares by both of their numbers; some columns have no sum."""
    if head in ("stub", "seeds"):
        return ""
    if head == "check":
        return f"{sum(map(float, column)):.0f}"
    if head == "grade":
        return f"{sum(map(float, column)):.1f}"
    if head in ("tasks", "tests"):
        return str(sum(map(int, column)))
    pairs = [cell.split()[0].split("/") for cell in column if "/" in cell]
    part, whole = (sum(int(pair[at].rstrip("*")) for pair in pairs) for at in (0, 1))
    return _share(part, whole) if head in ("mutants", "layout") else f"{part}/{whole}"


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
            console.print(f"{check.lab.key}: {problem}", style="red", soft_wrap=True)
        missing = [mutant for mutant, reason in check.survivors if not reason]
        if missing:
            console.print(f"\nTo kill by a test, or to argue in survivors/{check.lab.key}.toml:\n")
        for mutant in missing:
            entry = (
                f"[[survivor]]\nfile = {toml(mutant.file)}\nfunction = {toml(mutant.function)}\n"
                f"line = {toml(mutant.line)}\nchange = {toml(mutant.change)}\nreason = ''\n"
            )
            console.print(entry, soft_wrap=True)


def toml(text: str) -> str:
    """A TOML string as is; a line of code may hold either quote, seldom three of one."""
    return f"'{text}'" if "'" not in text else f"'''{text}'''"


def keep(checks: Sequence[LabCheck], curriculum: Curriculum) -> None:
    """Record what was proven of these labs, and their figures.

    A lab with problems has proven nothing, and loses the record that it had.
    """
    with locked(RECORD):  # another process may prove other labs meanwhile
        proofs = read_proofs()
        for check in checks:
            proofs.pop(check.lab.key, None)
            if not check.problems:
                digest = digest_of(check.lab)
                layout = check.layout_killed, check.num_layout
                proofs[check.lab.key] = Proof(digest, check.killed, check.num_mutants, *layout)
        write_proofs({key: proofs[key] for key in curriculum.keys if key in proofs}, RECORD)
        write_figures(checks, curriculum, FIGURES)


def write_figures(checks: Sequence[LabCheck], curriculum: Curriculum, path: Path) -> None:
    """Keep the table, and every survivor with its reason, in the repository. Of labs that were not
    checked now, what stands there already."""
    known, lives = _read_figures(path)
    known |= {check.lab.key: _row(check) for check in checks}
    lives |= {check.lab.title: _survivors(check) for check in checks}
    table = [known[key] for key in curriculum.keys if key in known]
    lines = [
        "# What the graders are held to",
        "",
        "Written by `make selfcheck ARGS=--write`; `make selfcheck` checks it all again.",
        "",
        LEGEND,
        "",
        f"| {' | '.join(HEADS)} |",
        f"|{'|'.join('---' for _ in HEADS)}|",
        *(f"| {' | '.join(row)} |" for row in (*table, _sum(table))),
        "",
        "## Mutants that live",
        "",
    ]
    for lab in curriculum.labs:
        if told := lives.get(lab.title):
            lines += [f"### {lab.title}", "", *told, ""]
    write_whole(path, "\n".join(lines).rstrip() + "\n")


def _survivors(check: LabCheck) -> list[str]:
    return [
        f"- `{mutant.file}`, `{mutant.function}`: `` {mutant.line} ``, {mutant.change}. {reason}"
        for mutant, reason in sorted(check.survivors, key=lambda pair: pair[0].key)
    ]


def _read_figures(path: Path) -> tuple[dict[str, Row], dict[str, list[str]]]:
    """Rows by lab, and what is told of survivors by a lab's title. A table with other columns counts
    for nothing."""
    known: dict[str, Row] = {}
    lives: dict[str, list[str]] = {}
    title = ""
    for line in path.read_text("utf-8").splitlines() if path.is_file() else ():
        if line.startswith("| "):
            cells = tuple(line.strip("| ").split(" | "))
            if len(cells) == len(HEADS):
                known[cells[0]] = cells
        elif line.startswith("### "):
            title = line.removeprefix("### ")
        elif line.startswith("- "):
            lives.setdefault(title, []).append(line)
    return known, lives
