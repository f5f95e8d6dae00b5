"""Tables over many labs: a learner's progress, and a class."""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from grader.report.lines import columns, show
from grader.report.next import next_step
from grader.report.text import MARKS, explanation_lines, heading, regression
from grader.verdict import LabResult, Verdict

LEGEND = "✓ passed   ✗ failed   · not implemented yet   ? not verified here"
NARROW = 72
"""Characters; on a terminal with fewer the table leaves columns out until it fits."""
ALL = ((0, 1, 2, 3, 4), (0, 2, 3), (0, 3))
POINTS = 3
HEAD = [("  lab", "dim"), ("title", "dim"), ("tasks", "dim"), ("points", "dim"), ("seconds", "dim")]


def print_progress(
    console: Console,
    results: Sequence[LabResult],
    withdrawn: dict[str, tuple[str, ...]],
    impl: str = "labs",
) -> None:
    """A line for each lab, then the first thing to do. withdrawn: by lab, see `print_report`."""
    rows = [HEAD, *(_row(result) for result in results)]
    lines = [*_table(rows, console.width), Text("")]
    points = sum(result.points for result in results)
    lines.append(Text(f"{points} of {sum(r.max_points for r in results)} points.   {LEGEND}"))
    lost = {lab: tasks for lab, tasks in withdrawn.items() if tasks}
    lines += [Text.assemble(f"{lab}: ", regression(tasks)) for lab, tasks in lost.items()]
    show(console, [*lines, Text(""), *_first_thing(results, console.width, impl)])


def _table(rows: list[list[tuple[str, str]]], width: int) -> list[Text]:
    """All columns, or those that fit a narrow terminal."""
    lines: list[Text] = []
    for kept in ALL if width < NARROW else ALL[:1]:
        chosen = [[row[column] for column in kept] for row in rows]
        right = frozenset(kept.index(column) for column in kept if column >= POINTS)
        lines = columns(chosen, right=right)
        if max(line.cell_len for line in lines) <= width:
            break
    return lines


def _row(result: LabResult) -> list[tuple[str, str]]:
    points, seconds = f"{result.points}/{result.max_points}", f"{result.seconds:.1f}"
    name = f"  {result.lab.number} {result.lab.key}"
    if result.problem is not None:
        return [
            (name, ""),
            (result.lab.title, ""),
            ("cannot be graded", "red"),
            (points, ""),
            ("", ""),
        ]
    marks = "".join(MARKS[task.verdict][0] for task in result.tasks)
    verdicts = {task.verdict for task in result.tasks}
    style = MARKS[verdicts.pop()][1] if len(verdicts) == 1 else ""
    style = "red" if Verdict.FAILED in verdicts else style
    return [(name, ""), (result.lab.title, ""), (marks, style), (points, ""), (seconds, "dim")]


def _first_thing(results: Sequence[LabResult], width: int, impl: str) -> list[Text]:
    """Of the first lab on the path that is not complete."""
    for result in results:
        if result.problem is not None:
            return [heading(result), *explanation_lines(result.problem, width, indent=2)]
        if not result.is_complete:
            see = Text(f"  in full   make grade LAB={result.lab.key}")
            first, *more = next_step(result, width, impl)
            return [Text.assemble(f"{result.lab.title}. ", first), see, *more]
    return [Text("Every lab is complete.", style="bold green")]
