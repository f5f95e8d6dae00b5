"""Variants of the reference radix tree that misbehave in one test of task 4.3, and a quick grading."""

import shutil
from pathlib import Path

from grader.runner import Limits, grade_lab
from grader.submission import Submission
from grader.verdict import Explanation, LabResult, Verdict
from yaie.curriculum.manifest import ROOT, load_curriculum

RADIX_TREE = load_curriculum()["radix_tree"]
TASK, LATER_TASK = "4.3", "4.4"
TEST = "split"  # in the name of a test of that task
ANCHOR = "Every lock on the lower half protects the upper half too"
QUICK = Limits(seconds=60, test_seconds=6.0, memory_gib=1.0, import_seconds=30.0)
IMPATIENT = Limits(seconds=60, test_seconds=2.0, memory_gib=1.0, import_seconds=1.0)


def part_with(folder: Path, deed: str = "", *, top: str = "") -> Submission:
    """The reference. deed: done once, by `split`, in that one test. top: put above its file."""
    part = folder / "radix_tree"
    shutil.copytree(
        ROOT / "solutions/radix_tree", part, ignore=shutil.ignore_patterns("__pycache__")
    )
    file = part / "radix_tree.py"
    lines = file.read_text("utf-8").splitlines()
    [docstring] = [index for index, line in enumerate(lines) if ANCHOR in line]
    if deed:
        guard = " " * 8 + 'if TEST in environ.get("PYTEST_CURRENT_TEST", "") and not DONE:'
        body = [" " * 12 + line for line in ["DONE.append(1)", *deed.strip().splitlines()]]
        top += f"\nfrom os import environ\nTEST, DONE = {TEST!r}, []\n"
        lines[docstring + 2 : docstring + 2] = [guard, *body]
    file.write_text("\n".join([*top.splitlines(), *lines]) + "\n", "utf-8")
    return Submission(RADIX_TREE, part.resolve(), folder.resolve())


def grade_quickly(
    submission: Submission, limits: Limits = QUICK, tasks: tuple[str, ...] = (TASK, LATER_TASK)
) -> LabResult:
    return grade_lab(submission, tasks=tasks, limits=limits, shrink=False, effort=0.05)


def verdicts(result: LabResult) -> dict[str, Verdict]:
    return {task.task.id: task.verdict for task in result.tasks}


def why(result: LabResult, task: str = TASK) -> Explanation:
    """Why a task did not pass."""
    [worst] = [found.worst for found in result.tasks if found.task.id == task]
    assert worst is not None, f"task {task} passed"
    assert worst.explanation is not None
    return worst.explanation
