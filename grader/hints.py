"""`make hint`: one rung a call, from a question to the shape of the code; never the code."""

import re
from collections.abc import Mapping
from pathlib import Path

from rich.text import Text

from grader.regions import find_regions
from grader.report.lines import prose, verbatim
from grader.report.next import chapter_address, sheet_address
from yaie.core.compat import tomllib
from yaie.core.errors import ConfigError
from yaie.curriculum.manifest import ROOT, Lab, Task
from yaie.curriculum.progress import PROGRESS, Progress, source_files
from yaie.system.files import reason

HINTS = Path("grader/hints")
RUNGS = {
    "question": "a question",
    "invariant": "the invariant",
    "example": "a smallest example",
    "shape": "the shape of the code",
}
"""The keys of a hint file's tables, in the order in which they are climbed."""
MARGIN = 75
"""A line of a hint file that is longer goes on in the next one."""


def read_hints(lab: Lab, task: Task, root: Path = ROOT) -> tuple[str, ...]:
    """The four rungs of a task. Raises ConfigError if nobody has written them."""
    file = root / HINTS / f"{lab.key}.toml"
    table: Mapping[str, str] = {}
    if file.is_file():
        table = tomllib.loads(file.read_text("utf-8")).get(task.id, {})
    if not all(name in table for name in RUNGS):
        raise ConfigError(f"task {task.id} of lab {lab.key} has no hints yet", param="task")
    return tuple(table[name].strip() for name in RUNGS)


def give_hint(
    lab: Lab, task_name: str = "", *, again: bool = False, width: int = 80, root: Path = ROOT
) -> list[Text]:
    """The hint as lines, one rung higher than last time; again: no higher.

    task_name: if empty, the first task that has not passed; those that passed before the files changed
    come last. A task that has passed gets no hint but the
    place of the reference.
    """
    with Progress.changing(root) as progress:
        return _climb(progress, lab, task_name, again=again, width=width, root=root)


def _climb(
    progress: Progress, lab: Lab, task_name: str, *, again: bool, width: int, root: Path
) -> list[Text]:
    """See `give_hint`. progress: as it is now, locked."""
    passed = progress.passed_tasks(lab, root / "labs" / lab.key)
    # What passed before the last change is most likely still right.
    earlier = progress.earlier_passes(lab, root / "labs" / lab.key)
    open_tasks = [task for task in lab.tasks if task.id not in passed]
    open_tasks.sort(key=lambda task: task.id in earlier)
    if task_name:
        task = lab.task(task_name)
    elif open_tasks:
        task = open_tasks[0]
    else:
        return [Text(f"Every task of lab {lab.key} has passed. The reference: solutions/{lab.key}")]
    if task.id in passed:
        return _after_the_pass(lab, task, root)
    rungs = read_hints(lab, task, root)
    taken = min(progress.hints.get(task.id, 0), len(rungs))
    shown = taken if again else min(taken + 1, len(rungs))
    lines = _ladder(lab, task, rungs, shown, is_new=shown > taken, width=width, root=root)
    if shown > taken:
        progress.hints[task.id] = shown
        try:
            progress.save()
        except OSError as error:
            why = f"cannot write {PROGRESS} ({reason(error)})"
            lines.append(Text(f"This hint will come again: {why}.", style="yellow"))
    return lines


def _ladder(
    lab: Lab,
    task: Task,
    rungs: tuple[str, ...],
    shown: int,
    *,
    is_new: bool,
    width: int,
    root: Path,
) -> list[Text]:
    """Earlier rungs dimmed, the new one bright, and what comes next."""
    lines = [Text(f"Task {task.id}: {task.title}", style="bold")]
    for index, (name, text) in enumerate(zip(RUNGS.values(), rungs[:shown], strict=False)):
        is_bright = is_new and index == shown - 1
        label = f"Hint {index + 1} of {len(rungs)}, {name}" + (
            "" if is_bright else " (seen before)"
        )
        lines += [Text(""), Text(label, style="bold cyan" if is_bright else "dim")]
        # What is indented is code or a drawing, and wraps nowhere.
        has_shape = any(line.startswith((" ", "\t")) for line in text.splitlines())
        style = "" if is_bright else "dim"
        lines += (
            verbatim(text, style, indent=2)
            if has_shape
            else prose(_unwrap(text), style, width=width, indent=2)
        )
    lines.append(Text(""))
    command = f"make hint LAB={lab.key} TASK={task.id}"
    if shown == len(rungs):
        lines.append(
            Text(f"That was the last one. The chapter: {chapter_address(lab.chapter, root)}")
        )
        lines += [
            Text(f"Its sheet, with a note on the task: {sheet}")
            for sheet in sheet_address(lab, root)
        ]
    elif shown == 0:
        lines.append(Text(f"No hint was taken yet; {command} gives the first."))
    else:
        lines.append(Text(f"More: {command}"))
    return lines


def _unwrap(text: str) -> str:
    """Sentences as they were before the file's margin broke them; shorter lines end where they do."""
    return re.sub(rf"(?<=[^\n]{{{MARGIN}}})\n(?=\S)", " ", text)


def _after_the_pass(lab: Lab, task: Task, root: Path) -> list[Text]:
    lines = [Text(f"Task {task.id} has passed. Compare with the reference:")]
    for file in source_files(root / "solutions" / lab.key):
        shown = file.relative_to(root).as_posix()
        regions = find_regions(file.read_text("utf-8").splitlines(), Path(shown))
        mine = (region for region in regions if region.task == task.id)
        lines += [Text(f"  {shown}, line {region.begin + 2}") for region in mine]
    return lines
