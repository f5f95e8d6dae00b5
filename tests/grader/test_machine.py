"""A lab that this machine cannot grade has a verdict of its own; full marks say what they leave open."""

import dataclasses
import io
import json

import pytest
from rich.console import Console

from grader import machine
from grader.record import record
from grader.report.formats import as_json
from grader.report.text import print_report
from grader.runner import grade_lab
from grader.submission import find_submission
from grader.verdict import Verdict
from tests.grader.results import complete, result_of
from yaie.curriculum.manifest import Lab, load_curriculum
from yaie.curriculum.progress import Progress

TREE = load_curriculum()["radix_tree"]
TRITON = dataclasses.replace(TREE, verify=("triton-interpreter", "gpu"))
CUDA = dataclasses.replace(TREE, verify=("cuda-on-cpu", "gpu"))


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither Triton nor a compiler."""
    monkeypatch.setattr(machine, "find_spec", lambda name: None)
    monkeypatch.setattr(machine.shutil, "which", lambda name: None)


def test_triton_labs_are_graded_in_the_interpreter() -> None:
    assert machine.environment(TRITON)["TRITON_INTERPRET"] == "1"
    assert "TRITON_INTERPRET" not in machine.environment(TREE)


def test_what_is_missing_is_said_with_what_to_do(bare, monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine.what_is_missing(TREE) == ""
    assert "g++" in machine.what_is_missing(CUDA)
    monkeypatch.setattr(machine.sys, "platform", "linux")
    assert "make setup" in machine.what_is_missing(TRITON)
    monkeypatch.setattr(machine.sys, "platform", "darwin")
    assert "no build for this system" in machine.what_is_missing(TRITON)


def test_a_compiler_may_be_named(bare, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "mine -m64")
    monkeypatch.setattr(machine.shutil, "which", lambda name: name if name == "mine" else None)
    assert machine.what_is_missing(CUDA) == ""


@pytest.mark.parametrize("lab", [TRITON, CUDA], ids=["triton", "cuda"])
def test_where_the_lab_cannot_be_graded_no_task_passes_or_fails(bare, lab: Lab, tmp_path) -> None:
    submission = dataclasses.replace(find_submission(TREE, "solutions"), lab=lab)
    result = grade_lab(submission)
    assert {task.verdict for task in result.tasks} == {Verdict.NOT_VERIFIED}
    assert result.points == 0
    assert record(result, tmp_path) == ()
    assert Progress.load(tmp_path).records[lab.key].passed == ()


def printed(result) -> str:
    console = Console(file=io.StringIO(), width=80, highlight=False)
    print_report(console, result)
    return console.file.getvalue()


def test_the_reason_stands_in_the_report_once(bare) -> None:
    submission = dataclasses.replace(find_submission(TREE, "solutions"), lab=CUDA)
    text = printed(grade_lab(submission))
    assert text.count("? 4.") == 5
    assert text.count("There is no C++ compiler") == 1


def test_full_marks_say_what_only_a_gpu_shows() -> None:
    report = printed(dataclasses.replace(complete(), lab=TRITON))
    assert "? not verified here: speed and tensor cores; on a machine with a GPU: yaie\n" in report
    assert "yaie bench kernels" in " ".join(report.split())
    assert "not verified here" not in printed(complete())
    [lab] = json.loads(
        as_json([dataclasses.replace(complete(), lab=TRITON)], seed=0, impl="labs", withdrawn={})
    )["labs"]
    assert "speed" in lab["not_verified_here"]


def test_nothing_is_left_open_before_something_has_passed() -> None:
    assert "not verified here" not in printed(dataclasses.replace(result_of(), lab=TRITON))


def test_what_ran_too_long_is_told_by_what_it_did() -> None:
    told = machine.why_too_long
    assert told(10.0, 9.0, is_starved=True).startswith("A loop that never ends")
    assert "got the processor for 0.8 of 10 seconds" in told(10.0, 0.8, is_starved=True)
    assert "waited for the rest" in told(10.0, 0.8, is_starved=False)
