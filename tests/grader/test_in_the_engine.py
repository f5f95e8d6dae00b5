"""The last test of each lab: the engine on the whole part, once every task has passed."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch import Tensor

import solutions.tensor_parallel as tensor_parallel
from grader import grading
from grader.account import Account
from grader.kit.expect import Mismatch
from grader.kit.in_engine.labs import expect_the_engine_runs_on
from grader.runner import grade_lab
from grader.selfcheck.variants import IGNORED, known_wrong, reference_folder, write_wrong
from grader.submission import Submission, load
from grader.verdict import LabResult, TestResult, Verdict
from grader.worker import WHOLE
from tests.grader.results import RADIX_TREE, graded, result_of
from yaie.curriculum.manifest import load_curriculum
from yaie.parts import forget_part

LAST = "4.5"


def copy_of_the_tree(folder: Path, old: str, new: str) -> Submission:
    """The reference of lab 4 with one edit."""
    shutil.copytree(reference_folder(RADIX_TREE), folder, ignore=IGNORED)
    file = folder / "radix_tree.py"
    text = file.read_text("utf-8")
    assert text.count(old) == 1
    file.write_text(text.replace(old, new), "utf-8")
    return Submission(RADIX_TREE, folder, folder)


def whole_of(result: LabResult) -> list[TestResult]:
    return [test for task in result.tasks for test in task.tests if test.name.startswith(WHOLE)]


@pytest.mark.slow
def test_a_part_that_is_wrong_with_the_blocks_of_the_engine_alone_is_found(tmp_path: Path) -> None:
    """No suite of lab 4 has blocks of sixteen tokens; the engine has."""
    wrong = copy_of_the_tree(
        tmp_path / "radix_tree",
        "    def match_prefix(self",
        "    def match_prefix(self, token_ids, max_blocks):\n"
        "        blocks, node = self._match_prefix(token_ids, max_blocks)\n"
        "        is_wrong = self.block_size == 16 and len(blocks) > 2\n"
        "        return [*blocks[1:], blocks[-1]] if is_wrong else blocks, node\n\n"
        "    def _match_prefix(self",
    )
    result = grade_lab(wrong)
    (found,) = whole_of(result)
    assert result.passed == ("4.1", "4.2", "4.3", "4.4")
    assert found.task == LAST
    assert found.verdict is Verdict.FAILED
    assert found.explanation is not None
    assert "request" in found.explanation.problem
    assert any("your radix_tree" in line for line in found.explanation.script)


@pytest.mark.nightly
def test_it_waits_for_all_tasks(tmp_path: Path) -> None:
    """What fails in a task is told there, and costs the last task nothing."""
    wrong = copy_of_the_tree(
        tmp_path / "radix_tree",
        "    def peek(self",
        "    def peek(self, token_ids, max_blocks):\n        return []\n\n    def _peek(self",
    )
    result = grade_lab(wrong)
    assert "4.1" not in result.passed
    assert not whole_of(result)
    verdicts = {task.task.id: task.verdict for task in result.tasks}
    assert verdicts[LAST] in (Verdict.PASSED, Verdict.FAILED)  # and not: not reached


def test_only_a_test_that_is_not_needed_can_be_left_out() -> None:
    account = Account(planned=[("a", "4.1", "A."), (WHOLE, LAST, "B.")])
    account.take({"event": "left out", "name": WHOLE})
    assert account.open_tests == [("a", "4.1", "A."), (WHOLE, LAST, "B.")]
    account.settle("a", "4.1", Verdict.FAILED, "It is wrong.")
    account.take({"event": "left out", "name": WHOLE})
    assert account.is_over


def test_the_task_that_completes_a_lab_has_all_graded_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: tuple[str, ...] = ("4.1", "4.2", "4.3", "4.4")
    monkeypatch.setattr(grading, "_passed", lambda lab: (done, ()))
    passed = result_of(graded(LAST, Verdict.PASSED), only=[LAST])
    assert grading._completes(passed)
    assert not grading._completes(result_of(graded(LAST, Verdict.FAILED), only=[LAST]))
    done = ("4.1", "4.2")
    assert not grading._completes(passed)
    done = ("4.1", "4.2", "4.3", "4.4", LAST)
    assert not grading._completes(passed)


class LateRing(tensor_parallel.Ring):
    """Right in its first call alone."""

    calls = 0

    def all_reduce(self, x: Tensor) -> Tensor:
        self.calls += 1
        return super().all_reduce(x) if self.calls == 1 else x


def but(package: Any, **others: Any) -> Any:
    """A part that is the reference's, but for some names."""
    return SimpleNamespace(**{**vars(package), **others})


def test_a_ring_that_is_right_once_is_found() -> None:
    with pytest.raises(Mismatch, match="rank 0 draws in step 0"):
        expect_the_engine_runs_on(but(tensor_parallel, Ring=LateRing), "tensor_parallel")
    expect_the_engine_runs_on(tensor_parallel, "tensor_parallel")


def test_a_reply_with_another_count_is_found(tmp_path: Path) -> None:
    lab = load_curriculum()["api_server"]
    wrong = next(one for one in known_wrong(lab) if one.name == "cached_tokens_subtracted")
    folder = write_wrong(wrong, lab, tmp_path / "api_server")
    try:
        part = load(Submission(lab, folder, folder))
        with pytest.raises(Mismatch, match="the answer to request"):
            expect_the_engine_runs_on(part, "api_server")
    finally:
        forget_part("api_server")
