"""What the habits of the labs came to, on the terminal and in `grader/HABITS.md`."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from grader.selfcheck.habits import RULES
from grader.selfcheck.habits.proof import Habits
from grader.selfcheck.report import toml
from grader.selfcheck.variants import GRADER
from yaie.curriculum.manifest import Curriculum
from yaie.system.files import write_whole

FIGURES = GRADER / "HABITS.md"
HEADS = ("lab", "habits", "equal", "caught", "argued", "by task")
LEGEND = """\
Written by `python -m grader habits --write`. A habit is a wrong or wasteful version of the reference as
people write them: a buffer for all results, a cap, `is` for `==`, a copy of the whole, a history. Each
rule is applied wherever it fits in what a learner writes in Python, and graded by the tests of its own
task alone. equal: an edit that changes nothing a contract promises. caught: of the others, by the tests.
argued: of the others, that may live (a copy that makes a call slower by a constant factor). Each of both
kinds has its reason in grader/survivors/habits."""


def row_of(found: Habits) -> tuple[str, ...]:
    """See LEGEND. By task: how many are caught, of all of them."""
    every = Counter(habit.task for habit in found.graded)
    lives = Counter(habit.task for habit, _ in found.living)
    tasks = [f"{task} {every[task] - lives[task]}/{every[task]}" for task in sorted(every)]
    wrong = len(found.graded) - found.num_equal
    share = f"{found.num_caught / wrong:.0%}" if wrong else ""
    return (
        found.lab.key,
        str(len(found.graded)),
        str(found.num_equal),
        f"{found.num_caught} {share}".strip(),
        str(len(found.living) - len(found.unargued) - found.num_equal),
        ", ".join(tasks),
    )


def show(console: Console, found: Sequence[Habits]) -> None:
    """A table, and the entries to fill in for those that live without a reason."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for head in HEADS:
        table.add_column(head, justify="right" if head in HEADS[1:5] else "left")
    for each in found:
        table.add_row(*row_of(each))
    console.print(table)
    for each in found:
        for key in each.gone:
            console.print(f"{each.lab.key}: argued, and not there: {' | '.join(key)}", style="red")
        for key in each.outdated:
            console.print(f"{each.lab.key}: argued, and caught: {' | '.join(key)}", style="red")
        if each.unargued:
            console.print(f"\nTo catch, or to argue in survivors/habits/{each.lab.key}.toml:\n")
        for habit in each.unargued:
            entry = [f"{name} = {toml(getattr(habit, name))}"
                     for name in ("file", "function", "line", "change")]  # fmt: skip
            console.print("[[survivor]]", *entry, "reason = ''\n", sep="\n", markup=False)


def write(found: Sequence[Habits], curriculum: Curriculum, path: Path = FIGURES) -> None:
    """Keep the rows of these labs, and those of others as they stand there."""
    lines = path.read_text("utf-8").splitlines() if path.is_file() else []
    rows = {cells[0]: cells for line in lines if len(cells := _cells(line)) == len(HEADS)}
    rows |= {each.lab.key: row_of(each) for each in found}
    table = [rows[key] for key in curriculum.keys if key in rows]
    names = ", ".join(rule.name for rule in RULES)
    text = [
        "# Habits, and whether the graders catch them", "", LEGEND, "", f"Rules: {names}.", "",
        f"| {' | '.join(HEADS)} |", f"|{'|'.join('---' for _ in HEADS)}|",
        *(f"| {' | '.join(row)} |" for row in table),
    ]  # fmt: skip
    write_whole(path, "\n".join(text) + "\n")


def _cells(line: str) -> tuple[str, ...]:
    return tuple(line.strip("| ").split(" | ")) if line.startswith("| ") else ()
