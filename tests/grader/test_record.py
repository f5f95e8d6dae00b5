"""What a grading does to `.yaie/progress.json`: passes count for exactly one source."""

import subprocess
import sys
import threading
from dataclasses import replace

from grader.hints import RUNGS, give_hint
from grader.record import record
from grader.verdict import Verdict
from tests.grader.results import RADIX_TREE, SLOW, broken, complete, graded, mixed, result_of
from yaie.curriculum.manifest import ROOT, load_curriculum
from yaie.curriculum.progress import Progress, part_digest


def passed(root):
    return Progress.load(root).records["radix_tree"].passed


def test_what_passed_is_written_down_with_its_points_and_source(tmp_path):
    assert record(result_of(graded("4.2", Verdict.PASSED)), tmp_path) == ()
    entry = Progress.load(tmp_path).records["radix_tree"]
    assert (entry.passed, entry.points, entry.digest) == (("4.2",), 20, "d")


def test_a_task_that_was_not_asked_for_keeps_its_pass_on_the_same_source(tmp_path):
    record(result_of(graded("4.1", Verdict.PASSED)), tmp_path)
    assert record(result_of(graded("4.2", Verdict.PASSED), only=["4.2"]), tmp_path) == ()
    assert passed(tmp_path) == ("4.1", "4.2")


def test_on_another_source_it_loses_its_pass_without_being_called_a_regression(tmp_path):
    record(result_of(graded("4.1", Verdict.PASSED)), tmp_path)
    result = result_of(graded("4.2", Verdict.PASSED), only=["4.2"], digest="other")
    assert record(result, tmp_path) == ()
    assert passed(tmp_path) == ("4.2",)


def test_what_passed_on_another_source_is_known_until_it_is_graded_again(tmp_path):
    folder = tmp_path / "labs/radix_tree"
    folder.mkdir(parents=True)

    def earlier():
        return Progress.load(tmp_path).earlier_passes(RADIX_TREE, folder)

    digests = []
    for task, verdict in (
        ("4.1", Verdict.PASSED),
        ("4.2", Verdict.PASSED),
        ("4.1", Verdict.FAILED),
    ):
        (folder / "part.py").write_text(f"# written for {task} {verdict}")
        digests.append(part_digest(folder))
        before = earlier()
        tests = graded(task, verdict, SLOW if verdict is Verdict.FAILED else None)
        record(result_of(tests, only=[task], digest=digests[-1]), tmp_path)
    assert before == ("4.1", "4.2")
    assert earlier() == ("4.2",)
    record(complete(digest=digests[-1]), tmp_path)
    assert earlier() == ()


def test_tasks_that_passed_and_now_fail_are_named(tmp_path):
    record(complete(), tmp_path)
    tests = [graded(task.id, Verdict.PASSED) for task in RADIX_TREE.tasks[:3]]
    stub = graded("4.4", Verdict.NOT_IMPLEMENTED)
    wrong = graded("4.5", Verdict.FAILED, SLOW)
    assert record(result_of(*tests, stub, wrong, digest="new"), tmp_path) == ("4.4", "4.5")
    assert record(result_of(*tests, stub, wrong, digest="new"), tmp_path) == ()


def test_a_part_that_cannot_be_imported_withdraws_everything(tmp_path):
    record(complete(), tmp_path)
    assert record(replace(broken(), digest="new"), tmp_path) == tuple(
        task.id for task in RADIX_TREE.tasks
    )
    assert passed(tmp_path) == ()


def test_what_cannot_be_verified_here_keeps_its_pass_on_the_same_source_only(tmp_path):
    record(complete(), tmp_path)
    unverified = [graded(task.id, Verdict.NOT_VERIFIED, SLOW) for task in RADIX_TREE.tasks]
    assert record(result_of(*unverified), tmp_path) == ()
    assert len(passed(tmp_path)) == 5
    assert record(result_of(*unverified, digest="new"), tmp_path) == ()
    assert passed(tmp_path) == ()


def test_hints_that_were_taken_stay(tmp_path):
    progress = Progress.load(tmp_path)
    progress.hints["4.1"] = 2
    progress.save()
    record(complete(), tmp_path)
    assert Progress.load(tmp_path).hints == {"4.1": 2}


RECORDS = """
import sys
from dataclasses import replace
from pathlib import Path
from grader.record import record
from tests.grader.results import complete
from yaie.curriculum.manifest import load_curriculum

labs, root = load_curriculum().labs, Path(sys.argv[1])
for lab in labs[int(sys.argv[2]) :: 2]:
    for number in range(12):
        record(replace(complete(), lab=lab, digest=f"{number}"), root)
"""


def test_gradings_of_different_labs_at_once_keep_each_others_passes(tmp_path):
    command = [sys.executable, "-c", RECORDS, str(tmp_path)]
    both = [subprocess.Popen([*command, str(number)], cwd=ROOT) for number in (0, 1)]
    assert [one.wait(60) for one in both] == [0, 0]
    kept = Progress.load(tmp_path).records
    assert kept.keys() == set(load_curriculum().keys)
    assert {entry.digest for entry in kept.values()} == {"11"}


def test_a_hint_that_is_taken_while_a_grading_is_recorded_is_not_lost(tmp_path):
    """`make watch` records in a thread and gives hints in another."""
    (tmp_path / "grader").symlink_to(ROOT / "grader")
    lab, last = load_curriculum()["radix_tree"], len(RUNGS)
    thread = threading.Thread(target=lambda: [record(mixed(), tmp_path) for _ in range(60)])
    thread.start()
    tasks = [task.id for task in lab.tasks if task.id != "4.1"]  # it has passed, elsewhere
    for task in tasks * last:
        give_hint(lab, task, root=tmp_path)
    thread.join()
    assert Progress.load(tmp_path).hints == dict.fromkeys(tasks, last)
    assert passed(tmp_path) == ("4.1",)
