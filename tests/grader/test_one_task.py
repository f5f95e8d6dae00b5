"""A learner who has written one task of a lab, and nothing else, is graded on it."""

from pathlib import Path, PurePath

import pytest

from grader.regions import find_regions, make_stub
from grader.runner import grade_lab
from grader.submission import Submission
from yaie.curriculum.manifest import ROOT, Lab, load_curriculum

STANDS_ALONE = {
    "sampler": ("1.1", "1.2", "1.3", "1.4", "1.5", "1.6"),
    "radix_tree": ("4.1", "4.2", "4.3", "4.4", "4.5"),
    "scheduler": ("6.1", "6.2", "6.3", "6.4", "6.5", "6.6", "6.7", "6.8", "6.9"),
    "engine": ("7.1", "7.2", "7.3", "7.4", "7.5"),
}
IN_CI = ("4.1",)
TASKS = [
    (key, task) if task in IN_CI else pytest.param(key, task, marks=pytest.mark.nightly)
    for key, tasks in STANDS_ALONE.items()
    for task in tasks
]
"""CI tries two: others take as long and say the same."""


def write_with(task: str, lab: Lab, into: Path) -> Submission:
    """The lab's stub with one task filled in from the reference."""
    for source in (ROOT / "solutions" / lab.key).glob("*.py"):
        if source.name == "explore.py":
            continue
        lines = source.read_text("utf-8").splitlines()
        for region in reversed(find_regions(lines, source)):
            if region.task == task:
                del lines[region.end], lines[region.begin]
        stub = make_stub("\n".join(lines) + "\n", PurePath(source.name), lab)
        (into / source.name).write_text(stub, "utf-8")
    return Submission(lab, into, into)


@pytest.mark.slow
@pytest.mark.parametrize(("key", "task"), TASKS)
def test_one_written_task_earns_its_points(key: str, task: str, tmp_path: Path) -> None:
    lab = load_curriculum()[key]
    result = grade_lab(write_with(task, lab, tmp_path), tasks=[task])
    assert result.passed == (task,), result.tasks[0].worst
