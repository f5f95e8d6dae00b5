"""The report for people: marks and points, the first failure in full, and what to do next."""

import re
from collections.abc import Collection

from rich.console import Console
from rich.text import Text

from grader.machine import not_verified_here
from grader.report.lines import columns, folded, one_line, prose, show, verbatim, without_codes
from grader.report.next import next_step
from grader.verdict import Explanation, LabResult, TaskResult, Verdict, clipped

MARKS = {
    Verdict.PASSED: ("✓", "green"),
    Verdict.FAILED: ("✗", "red"),
    Verdict.NOT_IMPLEMENTED: ("·", "dim"),
    Verdict.NOT_VERIFIED: ("?", "yellow"),
}
PROGRAM = "The calls that lead there, to paste into .venv/bin/python:"
CALLS = "The calls that lead there (an account, not a program):"
WIDEST_LINE = 400
"""Characters of a line that the part has printed."""
CHECKED = re.compile("  # raises (Mismatch|Fault)$")
"""A check that runs inside a call, as that of a given part does, fails by an error of the grader's."""


def print_report(
    console: Console,
    result: LabResult,
    withdrawn: tuple[str, ...] = (),
    impl: str = "labs",
    passed: Collection[str] = (),
    earlier: Collection[str] = (),
) -> None:
    """withdrawn: tasks that passed at the last grading and now fail. impl: as for `grade`. passed:
    tasks with a pass on this source, graded now or before. earlier: those that passed on another
    source, and were not graded since."""
    show(console, report_lines(result, console.width, withdrawn, impl, passed, earlier))


def report_lines(
    result: LabResult,
    width: int,
    withdrawn: tuple[str, ...] = (),
    impl: str = "labs",
    passed: Collection[str] = (),
    earlier: Collection[str] = (),
) -> list[Text]:
    """See `print_report`."""
    lost = [Text(""), regression(withdrawn)] if withdrawn else []
    lost += [Text(""), *prose(result.unkept, "yellow", width=width)] if result.unkept else []
    lost += dropped_lines(result, width)
    lines = [heading(result), Text("")]
    if result.problem is not None:
        return [*lines, *explanation_lines(result.problem, width, indent=2), *lost]
    lines += [*task_lines(result), *open_lines(result, width), *lost, *failure_lines(result, width)]
    return [*lines, Text(""), *next_step(result, width, impl, passed, earlier)]


def heading(result: LabResult) -> Text:
    title = Text(f"Lab {result.lab.number}: {result.lab.title}", style="bold")
    points = f"   {result.points} of {result.max_points} points"
    return Text.assemble(title, points, (f"   {result.seconds:.1f} s", "dim"))


def task_lines(result: LabResult) -> list[Text]:
    return columns(
        (
            [
                (f"  {MARKS[task.verdict][0]} {task.task.id}", MARKS[task.verdict][1]),
                (task.task.title, ""),
                (f"{task.points}/{task.task.points}", ""),
                (remark(task), MARKS[task.verdict][1]),
            ]
            for task in result.tasks
        ),
        right=frozenset({2}),
    )


def open_lines(result: LabResult, width: int) -> list[Text]:
    """What passing leaves open on this machine; nothing before something has passed."""
    left = [*result.left_open, not_verified_here(result.lab)] if result.passed else []
    mark, style = MARKS[Verdict.NOT_VERIFIED]
    return [
        line
        for what in filter(None, left)
        for line in prose(f"{mark} not verified here: {what}", style, width=width, indent=2)
    ]


def remark(task: TaskResult) -> str:
    """A few words beside a task that did not pass."""
    if task.verdict is Verdict.PASSED:
        return ""
    if task.waits_for:
        return f"waits for task {task.waits_for}"
    if not task.tests:
        return "has no tests yet"
    return task.verdict.value


def regression(withdrawn: tuple[str, ...]) -> Text:
    count = len(withdrawn)
    tasks = "1 task that passed now fails" if count == 1 else f"{count} tasks that passed now fail"
    return Text(f"{tasks}: {', '.join(withdrawn)}", style="bold red")


def failure_lines(result: LabResult, width: int) -> list[Text]:
    """The first failure in full, each other one in a line, and what the part printed."""
    lines: list[Text] = []
    failed = [task for task in result.tasks if task.verdict is Verdict.FAILED]
    for task in failed[:1]:
        title = Text(f"Task {task.task.id}: {task.task.title}", style="bold red")
        lines += [Text(""), title, *explanation_lines(_why(task), width, indent=2)]
        lines += _replay_lines(result)
    unverified = [t for t in result.tasks if t.verdict is Verdict.NOT_VERIFIED and t.tests]
    others = [*failed[1:], *unverified]
    lines += [Text("")] if others else []
    if unverified and len({_why(task).problem for task in unverified}) == 1 < len(unverified):
        lines += prose(_why(unverified[0]).problem, MARKS[Verdict.NOT_VERIFIED][1], width=width)
        others = failed[1:]
    for task in others:
        line = one_line(f"Task {task.task.id}: {_why(task).problem}", width=width)
        lines.append(Text(line, style=MARKS[task.verdict][1]))
    output = without_codes(result.output).strip()
    if failed and output:
        printed = [clipped(line, WIDEST_LINE) for line in output.splitlines()[-10:]]
        left = (
            f" ({result.output_cut:,} bytes before it were left out)" if result.output_cut else ""
        )
        title = Text(f"\nThe end of what it printed{left}:")
        lines += [title, *verbatim("\n".join(printed), "dim", indent=2)]
    return lines


def dropped_lines(result: LabResult, width: int) -> list[Text]:
    """A part has no business on that channel: whatever it wrote there, the reader should know."""
    if not result.told_cut:
        return []
    count = f"{result.told_cut:,} bytes were" if result.told_cut > 1 else "1 byte was"
    told = f"{count} dropped on the grader's own channel: the part wrote there what is no result."
    return [Text(""), *prose(told, "yellow", width=width)]


def _why(task: TaskResult) -> Explanation:
    worst = task.worst
    return (worst and worst.explanation) or Explanation("", task.verdict.value)


def explanation_lines(why: Explanation, width: int, indent: int = 0) -> list[Text]:
    """Claim, what happened, expected and got, where, the calls, the state, the misconception."""
    deeper = indent + 2
    lines = prose(why.claim, "bold", width=width, indent=indent) if why.claim else []
    lines += prose(why.problem, "red", width=width, indent=indent)
    for name, value, style in (("expected", why.expected, "green"), ("got", why.got, "red")):
        if why.expected or why.got:
            lines += _labelled(name, value, style, deeper)
    if why.where:
        lines += verbatim(f"at {why.where}", indent=indent)
    calls = PROGRAM if why.is_program else CALLS
    script = [CHECKED.sub("  # where a check fails", line) for line in why.script]
    lines_of_calls = [row for line in script for row in folded(line, width - deeper)]
    blocks = ((calls, "\n".join(lines_of_calls)), *_states(why))
    for title, block in blocks:
        if block:
            lines += [Text(""), Text(" " * indent + title), *verbatim(block, indent=deeper)]
    if why.why:
        lines += [Text(""), *prose(why.why, "italic", width=width, indent=indent)]
    return lines


def _replay_lines(result: LabResult) -> list[Text]:
    """How to have it fail again. The calls above are an account of it."""
    if result.no_replay:
        return [Text(""), *verbatim(result.no_replay, indent=2)]
    if not result.replay:
        return []
    said = "  Run it again; the file makes these calls, and all that is around them:"
    return [Text(""), Text(said), *verbatim("\n".join(result.replay), indent=4)]


def _labelled(name: str, value: str, style: str, indent: int) -> list[Text]:
    """Further lines of the value stand below its first."""
    first, *more = verbatim(value, style)
    head = Text.assemble(" " * indent, f"{name:<10}", first)
    return [head, *(Text.assemble(" " * (indent + 10), line) for line in more)]


def _states(why: Explanation) -> tuple[tuple[str, str], ...]:
    """State before and after the last call; once, if it changed nothing."""
    if why.before == why.after:
        title = "In the kernel:" if why.after.startswith("program (") else "The state:"
        return ((title, why.after),)
    return (("Before the last call:", why.before), ("After it:", why.after))
