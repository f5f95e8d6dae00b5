"""`yaie lab upgrade`: labs older than their contract, what passes again and what is left to do."""

from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console
from rich.text import Text

from grader.record import record
from grader.runner import grade_labs
from grader.submission import find_submission
from grader.upgrade.lab import LabUpgrade, line_of, upgrade_lab
from yaie.curriculum.manifest import ROOT, Lab, load_curriculum

Grade = Callable[[Lab, Path], tuple[str, ...]]
"""The tasks of a lab that pass, noted in the learner's progress."""


def run(key: str, out: Console, root: Path = ROOT) -> int:
    """Upgrade one lab, or all if `key` is empty. Returns 0 if nothing is left to do, or else 1. Raises
    ConfigError."""
    curriculum = load_curriculum(root)
    left = False
    upgraded = 0
    for lab in [curriculum[key]] if key else curriculum.labs:
        if not (root / "labs" / lab.key).is_dir():
            continue
        done = upgrade_lab(lab, root)
        if done is None:
            continue
        upgraded += 1
        kept = done.backup.as_posix()
        title = f"{lab.title}: edition {done.edition} -> {lab.edition}."
        out.print(Text(title, "bold"), f"Your files as they were: {kept}", soft_wrap=True)
        for line, is_done in tell(done, root):
            left = left or not is_done
            out.print(Text(f"  {line}"), soft_wrap=True)
    if not upgraded:
        subject = f"labs/{key} is" if key else "All labs are"
        out.print(f"{subject} of today's edition: nothing to do.")
    return int(left)


def tell(
    done: LabUpgrade, root: Path = ROOT, grade: Grade | None = None
) -> Iterator[tuple[str, bool]]:
    """Lines about a lab that was carried over, each with whether it is good news. What had passed is
    graded again first."""
    lab, folder = done.lab, root / "labs" / done.lab.key
    again: tuple[str, ...] = ()
    if done.had:
        yield f"Grading what had passed: {', '.join(done.had)}.", True
        passed = (grade or graded)(lab, root)
        again = tuple(task for task in done.had if task in passed)
        if again:
            yield f"Passes again: {', '.join(again)}.", True
    for task in sorted(set(done.had) - set(again)):
        yield f"Does not pass any more: {task}.", False
    for note in done.notes:
        if note.task not in again:
            where = f"labs/{lab.key}/{note.file}, line {line_of(note, folder)}"
            yield f"{where}: task {note.task}: {note.text}.", not done.had
    for place in done.open:
        yield (
            f"labs/{lab.key}/{place.file}, line {place.line}: task {place.task} has a part more.",
            False,
        )
    for left in done.left_out:
        line = f", line {left.line}" if left.line else ""
        yield f"Not carried over: {(done.backup / left.file).as_posix()}{line}: {left.why}", False
    if not done.had:
        yield f"Grade it: make grade LAB={lab.key}", True


def graded(lab: Lab, root: Path) -> tuple[str, ...]:
    """Grade a lab of a checkout, and note what passes."""
    (result,) = grade_labs([find_submission(lab, root=root)], jobs=1)
    record(result, root)
    return result.passed
