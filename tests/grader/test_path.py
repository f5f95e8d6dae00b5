"""A lab is walked through task by task, and what stands in a learner's way is found."""

from pathlib import Path

import pytest

from grader.selfcheck.checks import num_submissions
from grader.selfcheck.farm import Farm, Outcome
from grader.selfcheck.labcheck import LabCheck
from grader.selfcheck.path import Step, judge, steps, walk
from grader.selfcheck.plan import Plan
from grader.selfcheck.variants import write_stub
from grader.verdict import Explanation, TestResult, Verdict
from yaie.curriculum.manifest import load_curriculum

TREE = load_curriculum()["radix_tree"]
IDS = [task.id for task in TREE.tasks]


def test_tasks_that_are_written_hold_the_reference_and_the_others_are_stubs(tmp_path: Path) -> None:
    text = (write_stub(TREE, tmp_path, IDS[:1]) / "radix_tree.py").read_text()
    assert f"task {IDS[0]}: not implemented yet" not in text
    assert f"task {IDS[1]}: not implemented yet" in text
    assert "SOLUTION" not in text
    whole = (write_stub(TREE, tmp_path, IDS) / "radix_tree.py").read_text()
    assert "NotImplementedError" not in whole


def test_a_path_begins_with_the_stub_and_ends_with_the_whole_lab() -> None:
    assert [step.name for step in steps(TREE)] == ["path/stub", *(f"path/{id}" for id in IDS)]
    assert steps(TREE)[-1].done == tuple(IDS)


@pytest.mark.nightly
def test_a_lab_is_walked_to_its_end(tmp_path: Path) -> None:
    check, graded = LabCheck(TREE), []
    with Farm(TREE.key, 2) as farm:
        walk(check, farm, tmp_path, graded.append)
    assert check.problems == []
    assert check.walked == len(IDS)
    assert len(graded) == len(IDS) + 1


def outcome(*, passed: int, waits: dict[str, str] | None = None) -> Outcome:
    """The first tasks have passed, the others are open."""
    tests = []
    for number, task in enumerate(IDS):
        waits_for = (waits or {}).get(task, "")
        verdict = Verdict.PASSED if number < passed and not waits_for else Verdict.NOT_IMPLEMENTED
        why = None if verdict is Verdict.PASSED else Explanation("claim", "not implemented yet")
        tests.append(TestResult(f"t::test_{task}", task, verdict, 0.0, waits_for, why))
    return Outcome("x", tuple(tests), "", 0.0)


def test_a_task_that_waits_for_a_later_one_is_a_finding(tmp_path: Path) -> None:
    step = Step(TREE, tuple(IDS[:2]))
    folder = write_stub(TREE, tmp_path, step.done)
    assert judge(step, outcome(passed=2), folder) == ""
    told = judge(step, outcome(passed=2, waits={IDS[1]: IDS[3]}), folder)
    assert told == f"task {IDS[1]} is written and does not pass: it waits for task {IDS[3]}"


@pytest.mark.nightly
def test_a_task_that_is_lost_on_the_way_is_a_finding(tmp_path: Path) -> None:
    step = Step(TREE, tuple(IDS[:3]))
    told = judge(step, outcome(passed=1), write_stub(TREE, tmp_path, step.done))
    assert told.startswith(f"task {IDS[1]} is written and does not pass: test_{IDS[1]}:")


def test_a_next_step_that_leads_elsewhere_is_a_finding(tmp_path: Path) -> None:
    step = Step(TREE, tuple(IDS[:1]))
    told = judge(step, outcome(passed=2), write_stub(TREE, tmp_path, step.done))
    assert f"the report says 'Next: task {IDS[2]}," in told
    told = judge(Step(TREE, ()), outcome(passed=5), write_stub(TREE, tmp_path / "stub"))
    assert "the report says 'Next: task" in told or "the report says 'Complete" in told


@pytest.mark.parametrize(
    ("plan", "walks"), [(Plan(), 1), (Plan(sample=3), 0), (Plan(path=False), 0)]
)
def test_a_sample_leaves_the_path_out(plan: Plan, walks: int) -> None:
    plain = Plan(seeds=plan.seeds, mutate=False, sample=plan.sample, path=False)
    plan = Plan(seeds=plan.seeds, mutate=False, sample=plan.sample, path=plan.path)
    more = num_submissions(TREE, plan) - num_submissions(TREE, plain)
    assert more == walks * (len(IDS) + 1)
