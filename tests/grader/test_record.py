"""What a grading does to `.yaie/progress.json`: passes count for exactly one source."""

from dataclasses import replace

from grader.record import record
from grader.verdict import Verdict
from tests.grader.results import RADIX_TREE, SLOW, broken, complete, graded, result_of
from yaie.curriculum.progress import Progress


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
