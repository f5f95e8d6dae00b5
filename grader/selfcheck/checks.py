"""What the graders are held to, lab by lab."""

import re
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from grader.cuda_source import without_comments
from grader.regions import find_regions
from grader.report.kinds import complaint
from grader.report.next import kernel_backend
from grader.runner import grade_lab
from grader.selfcheck.farm import Farm, Job, Outcome
from grader.selfcheck.killing import ELSEWHERE_EFFORT, Advance, all_mutants, check_mutants
from grader.selfcheck.labcheck import LabCheck
from grader.selfcheck.path import steps, walk
from grader.selfcheck.plan import WHOLE, Plan
from grader.selfcheck.variants import (
    GRADER,
    KnownWrong,
    known_right,
    known_wrong,
    reference_folder,
    write_right,
    write_stub,
    write_wrong,
)
from grader.submission import find_submission
from grader.verdict import LabResult, TestResult, Verdict
from yaie.core.compat import tomllib
from yaie.curriculum.manifest import Lab
from yaie.curriculum.progress import CUDA_SOURCES, source_files

LEAST_WRONG = 5
LEAST_RIGHT = 1
RUNGS = ("question", "invariant", "example", "shape")
SHORTEST_LINE = 14
"""Lines of the reference below this many characters, spaces aside, may stand in a hint: `return []`."""


def check_lab(
    lab: Lab, jobs: int, plan: Plan = WHOLE, advance: Advance = lambda count: None
) -> LabCheck:
    """Everything about one lab. advance: told how many submissions were graded since."""
    check = LabCheck(lab, plan.seeds)
    began = time.monotonic()
    _check_hints(check)
    with ThreadPoolExecutor(1) as pool, _scratch() as scratch, Farm(lab.key, jobs) as farm:
        # Meanwhile the farm warms up, which would leave all cores but one idle.
        in_runner = pool.submit(grade_lab, find_submission(lab, "solutions"))
        _check_known(check, farm, scratch, plan, advance)
        _check_runner(check, in_runner.result())
        advance(1)
        if plan.walks:
            walk(check, farm, scratch, advance)
        if plan.grades_mutants_of(lab):
            check_mutants(check, farm, scratch, plan, advance)
        elif proof := plan.proofs.get(lab.key):
            check.take(proof)
    check.seconds = time.monotonic() - began
    return check


def num_submissions(lab: Lab, plan: Plan) -> int:
    """How many `check_lab` grades, for a progress bar."""
    count = plan.seeds + 1 + len(plan.known_wrong(lab)) + len(plan.known_right(lab))
    count += len(steps(lab)) if plan.walks else 0
    return count + sum(1 for _ in all_mutants(lab, plan))


@contextmanager
def _scratch() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="yaie-selfcheck-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _check_runner(check: LabCheck, result: LabResult) -> None:
    """The reference earns full marks in the runner that learners use; and what that takes."""
    if result.points == check.lab.points:
        check.seeds += 1
    else:
        failed = {t.task.id: t.worst for t in result.tasks if t.verdict is not Verdict.PASSED}
        reasons = [test.explanation for test in failed.values() if test and test.explanation]
        told = next((why.problem for why in (result.problem, *reasons) if why), "no tests")
        check.problems.append(f"the reference fails {[*failed]} in the runner: {told}")
    check.grade_seconds = result.seconds
    tests = [test for task in result.tasks for test in task.tests]
    check.num_tests = len(tests)
    check.slowest_test = max((test.seconds for test in tests), default=0.0)
    check.problems += [
        f"task {task.task.id} has no test" for task in result.tasks if not task.tests
    ]


def _check_known(check: LabCheck, farm: Farm, scratch: Path, plan: Plan, advance: Advance) -> None:
    """Stub, known wrong and known right, and the reference under the other seeds."""
    lab = check.lab
    seeds = {f"seed {seed}": seed for seed in range(1, check.num_seeds)}
    wrongs = {f"known_wrong/{wrong.name}": wrong for wrong in plan.known_wrong(lab)}
    rights = {f"known_right/{folder.name}": folder for folder in plan.known_right(lab)}
    folders = {"stub": write_stub(lab, scratch / "stub")}
    folders |= {id: write_wrong(wrong, lab, scratch / id) for id, wrong in wrongs.items()}
    folders |= {id: write_right(folder, lab, scratch / id) for id, folder in rights.items()}
    folders |= dict.fromkeys(seeds, reference_folder(lab))
    jobs = [Job(id, str(folder), seed=seeds.get(id, 0)) for id, folder in folders.items()]
    for job in jobs:
        if wrong := wrongs.get(job.id):
            others = [task.id for task in lab.tasks if task.id not in wrong.must_fail]
            job.stages = [(sorted(wrong.must_fail), 1.0), (others, ELSEWHERE_EFFORT)]
        elif job.id in rights:
            # Of a sample the engine runs on the reference alone: it asks for no task by name.
            every = [task.id for task in lab.tasks] if plan.sample else []
            job.stages = [(every, plan.effort_for_right)]
    is_kernel = kernel_backend(lab) != ""
    for outcome in farm.run(jobs):
        advance(1)
        if outcome.id in wrongs:
            problem = _judge_wrong(outcome, wrongs[outcome.id], is_kernel=is_kernel)
            check.wrong += not problem
        elif outcome.id in rights:
            problem = _judge_right(outcome)
            check.right += not problem
        elif outcome.id in seeds:
            problem = _judge_right(outcome)
            check.seeds += not problem
        else:
            problem = _judge_stub(outcome)
        if problem:
            check.problems.append(f"{outcome.id}: {problem}")
    check.num_wrong, check.num_right = len(wrongs), len(rights)
    written, designs = len(known_wrong(lab)), len(known_right(lab))
    if written < LEAST_WRONG or designs < LEAST_RIGHT:
        check.problems.append(
            f"{written} known wrong and {designs} known right submissions, fewer than "
            f"{LEAST_WRONG} and {LEAST_RIGHT}"
        )


def _failures(outcome: Outcome) -> dict[str, list[TestResult]]:
    """Tests that did not pass, by task."""
    by_task: dict[str, list[TestResult]] = defaultdict(list)
    for test in outcome.tests:
        if test.verdict is not Verdict.PASSED:
            by_task[test.task].append(test)
    return by_task


def _judge_stub(outcome: Outcome) -> str:
    others = {test.verdict.value for test in outcome.tests} - {Verdict.NOT_IMPLEMENTED.value}
    passed = {t.task for t in outcome.tests} - _failures(outcome).keys()
    if outcome.problem or others or passed or not outcome.tests:
        return f"expected only 'not implemented yet': {outcome.problem or sorted(others)} {passed or ''}"
    return ""


def _judge_wrong(outcome: Outcome, wrong: KnownWrong, *, is_kernel: bool = False) -> str:
    failures = _failures(outcome)
    if outcome.problem:
        return outcome.problem
    if failures.keys() != wrong.must_fail:
        return f"fails {sorted(failures)}, but should fail {sorted(wrong.must_fail)}"
    said = [_text_of(test) for test in failures[wrong.task]]
    if not any(re.search(wrong.says, text, re.IGNORECASE | re.DOTALL) for text in said):
        return f"its failure does not say {wrong.says!r}: {said[0][:300]!r}"
    why = failures[wrong.task][0].explanation
    if why is None:
        return ""
    return complaint(
        wrong.name, wrong.kind, wrong.misconception, wrong.says, why, is_kernel=is_kernel
    )


def _text_of(test: TestResult) -> str:
    why = test.explanation
    return (
        "" if why is None else "\n".join((why.claim, why.problem, why.expected, why.got, why.why))
    )


def _judge_right(outcome: Outcome) -> str:
    failures = _failures(outcome)
    said = [_text_of(test)[:300] for tests in failures.values() for test in tests]
    if outcome.problem or failures or not outcome.tests:
        return f"fails {sorted(failures)} although it is right: {outcome.problem} {said[:1]}"
    return ""


def _check_hints(check: LabCheck) -> None:
    """Four rungs for every task, and no line of the reference on any."""
    path = GRADER / "hints" / f"{check.lab.key}.toml"
    table = tomllib.loads(path.read_text("utf-8")) if path.is_file() else {}
    lines = _reference_lines(check.lab)
    for task in check.lab.tasks:
        rungs = table.get(task.id, {})
        if tuple(rungs) != RUNGS or not all(str(text).strip() for text in rungs.values()):
            check.problems.append(f"hints of task {task.id}: the rungs must be {', '.join(RUNGS)}")
        for name, text in rungs.items():
            told = [line for line in lines if line in _squeezed(str(text))]
            if told:
                check.problems.append(
                    f"hint {name} of task {task.id} holds the reference's {told[0]}"
                )


def _reference_lines(lab: Lab) -> set[str]:
    """Lines of code in solution regions, without spaces; short ones are anybody's."""
    found = set()
    for path in source_files(reference_folder(lab)):
        text = path.read_text("utf-8")
        regions = find_regions(text.splitlines(), path)
        code = without_comments(text) if path.suffix in CUDA_SOURCES else text
        for region in regions:
            lines = code.splitlines()[region.begin + 1 : region.end]
            found |= {_squeezed(line) for line in lines}
    return {line for line in found if len(line) >= SHORTEST_LINE and not line.startswith("#")}


def _squeezed(text: str) -> str:
    return "".join(text.split())
