"""The grader's own proof notices what does not hold."""

import ast
from pathlib import Path

import pytest

from grader.selfcheck import checks, killing
from grader.selfcheck.checks import _judge_right, _judge_stub, _judge_wrong
from grader.selfcheck.cuda_mutants import mutants_of_cuda
from grader.selfcheck.farm import Farm, Job, Outcome
from grader.selfcheck.labcheck import LabCheck
from grader.selfcheck.mutant import Mutant
from grader.selfcheck.mutants import mutants_of, mutants_of_python
from grader.selfcheck.plan import WHOLE
from grader.selfcheck.variants import (
    KnownWrong,
    VariantError,
    known_right,
    known_wrong,
    reference_folder,
    write_stub,
    write_wrong,
)
from grader.verdict import Explanation, TestResult, Verdict
from yaie.curriculum.manifest import load_curriculum

LABS = load_curriculum().labs
TREE = load_curriculum()["radix_tree"]


def mutants(code: str) -> list[Mutant]:
    """The mutants of a function body, all of it one region."""
    text = "def f(a, b):\n" + "".join(f"    {line}\n" for line in code.splitlines())
    return list(mutants_of_python(text, "f.py", dict.fromkeys(range(1, 50), "4.1")))


def changes(code: str) -> list[str]:
    return [mutant.change for mutant in mutants(code)]


def test_operators_constants_conditions_and_statements_are_changed() -> None:
    assert changes("return a + 1") == ["return None", "Add -> Sub", "1 -> 2"]
    assert changes("return a < b") == ["return None", "Lt -> LtE"]
    assert changes("if a and b:\n    a.clear()") == [
        "negate the condition",
        "delete the If",
        "And -> Or",
        "delete the Expr",
    ]
    assert changes("while not a:\n    b -= 1")[:2] == ["negate the condition", "delete the While"]
    assert "drop the Not" in changes("return not a")
    assert "True -> False" in changes("return True")


def test_messages_annotations_and_assertions_are_left_alone() -> None:
    assert changes('raise ValueError(f"{a + 1} is wrong")') == ["delete the Raise"]
    assert changes("assert a > 1") == []
    assert changes("x: 'list[1]' = a") == ["delete the AnnAssign"]


def test_a_mutant_differs_from_the_source_in_one_place() -> None:
    for mutant in mutants("c = a + b\nreturn c * 2"):
        before = ast.unparse(ast.parse("def f(a, b):\n    c = a + b\n    return c * 2")).split("\n")
        after = mutant.source.rstrip().split("\n")
        assert sum(old != new for old, new in zip(before, after, strict=True)) == 1


CUDA = """\
__global__ void scale(float* x, int n) {
    // BEGIN SOLUTION 4.1
    const int i = threadIdx.x;
    if (i < n && !done) x[i] *= 2.5f;  // i < n
    __syncthreads();
    total = fmaxf(total, -x[i]);
    return;
    // END SOLUTION
}
"""


def test_cuda_is_changed_by_token_and_by_line() -> None:
    found = list(mutants_of_cuda(CUDA, "a.cu", dict.fromkeys(range(1, 7), "4.1")))
    assert [(m.line.split("  //")[0], m.change) for m in found] == [
        ("if (i < n && !done) x[i] *= 2.5f;", "< -> <="),
        ("if (i < n && !done) x[i] *= 2.5f;", "&& -> ||"),
        ("if (i < n && !done) x[i] *= 2.5f;", "*= -> /="),
        ("if (i < n && !done) x[i] *= 2.5f;", "2.5f -> 3.5f"),
        ("if (i < n && !done) x[i] *= 2.5f;", "! -> nothing"),
        ("if (i < n && !done) x[i] *= 2.5f;", "negate the condition"),
        ("if (i < n && !done) x[i] *= 2.5f;", "delete the statement"),
        ("__syncthreads();", "delete the statement"),
        ("total = fmaxf(total, -x[i]);", "- -> +"),
        ("total = fmaxf(total, -x[i]);", "fmaxf( -> fminf("),
        ("total = fmaxf(total, -x[i]);", "delete the statement"),
        ("return;", "delete the statement"),
    ]
    assert {m.function for m in found} == {"scale"}
    assert all(
        sum(a != b for a, b in zip(CUDA.splitlines(), m.source.splitlines(), strict=True)) == 1
        for m in found
    )
    [negated] = [m for m in found if m.change.startswith("negate")]
    assert "if (!(i < n && !done)) x[i] *= 2.5f;" in negated.source


def test_part_of_a_statement_is_no_statement_and_templates_are_no_comparison() -> None:
    text = "int f() {\n    g<int>(a,\n      b);\n    return g<4>(a);\n}\n"
    found = mutants_of_cuda(text, "a.cu", dict.fromkeys((1, 2, 3), "4.1"))
    assert [m.change for m in found] == ["4 -> 5", "return {}"]


def test_what_hands_the_status_of_a_launch_on_is_left_alone() -> None:
    text = (
        "int f() {\n    int error = 0;\n    error = launch(k<T>, dim3(1), dim3(2), 0, stream, x, 0);\n"
        "    launch(k<T>, dim3(1), dim3(2), 0,\n           stream);\n    launch(k<T>, one, two,\n"
        "           0, stream, x);\n    return error;\n}\n"
    )
    found = mutants_of_cuda(text, "a.cu", dict.fromkeys(range(1, 8), "4.1"))
    assert [m.change for m in found] == [
        "1 -> 2", "2 -> 3", "0 -> 1", "delete the statement", "1 -> 2", "2 -> 3",
    ]  # fmt: skip


def test_equal_changes_on_one_line_have_different_keys() -> None:
    keys = [mutant.key for mutant in mutants("return a + b + a")]
    assert len(set(keys)) == len(keys)


QUICK = {"sampler", "cuda_memory_ops"}
"""Labs whose mutants are made in two seconds; those of the others take a minute and a half together."""


@pytest.mark.parametrize(
    "lab",
    [
        pytest.param(lab, id=lab.key, marks=[] if lab.key in QUICK else pytest.mark.nightly)
        for lab in LABS
    ],
)
def test_every_lab_has_mutants_for_each_of_its_tasks(lab) -> None:
    found = list(mutants_of(reference_folder(lab), lab))
    assert {mutant.task for mutant in found} == {task.id for task in lab.tasks}
    assert len({mutant.key for mutant in found}) == len(found)


@pytest.mark.parametrize("lab", LABS, ids=lambda lab: lab.key)
def test_known_mistakes_fit_the_reference_as_it_is(lab, tmp_path: Path) -> None:
    for wrong in known_wrong(lab):
        write_wrong(wrong, lab, tmp_path / wrong.name)
    assert len(known_wrong(lab)) >= checks.LEAST_WRONG
    assert len(known_right(lab)) >= checks.LEAST_RIGHT


def test_an_edit_that_does_not_fit_is_an_error_that_names_it(tmp_path: Path) -> None:
    wrong = KnownWrong("odd", "", "4.1", (), "", (("radix_tree.py", "no such line", ""),))
    with pytest.raises(VariantError, match=r"radix_tree/odd\.toml: `old` must occur once"):
        write_wrong(wrong, TREE, tmp_path / "odd")


def result(task: str, verdict: Verdict, problem: str = "") -> TestResult:
    return TestResult(f"test_{task}", task, verdict, explanation=Explanation("claim", problem))


def outcome(*tests: TestResult, problem: str = "") -> Outcome:
    return Outcome("x", tests, problem, 0.0)


def test_a_known_mistake_must_fail_its_task_alone_and_be_named() -> None:
    wrong = KnownWrong("w", "m", "4.2", (), "crosses p", ())
    caught = result("4.2", Verdict.FAILED, "the token that crosses p is gone")
    assert _judge_wrong(outcome(caught), wrong) == ""
    assert "should fail" in _judge_wrong(outcome(result("4.2", Verdict.PASSED)), wrong)
    assert "should fail" in _judge_wrong(outcome(caught, result("4.3", Verdict.FAILED)), wrong)
    assert "does not say" in _judge_wrong(outcome(result("4.2", Verdict.FAILED, "no")), wrong)
    assert "died" in _judge_wrong(outcome(problem="the process died"), wrong)


def test_the_message_of_a_known_mistake_must_not_speak_of_another_kind() -> None:
    wrong = KnownWrong("k_stride_for_v", "v is read with k's stride", "4.2", (), "far apart", ())
    told = result(
        "4.2", Verdict.FAILED, "rows are as far apart as these: lanes out there need a mask"
    )
    assert "speaks of mask" in _judge_wrong(outcome(told), wrong, is_kernel=True)
    right = result("4.2", Verdict.FAILED, "rows are as far apart as the stride of v says")
    assert _judge_wrong(outcome(right), wrong, is_kernel=True) == ""


def test_a_stub_may_only_be_not_implemented() -> None:
    open_task = result("4.1", Verdict.NOT_IMPLEMENTED)
    assert _judge_stub(outcome(open_task)) == ""
    assert _judge_stub(outcome()) != ""
    assert _judge_stub(outcome(open_task, result("4.2", Verdict.PASSED))) != ""
    assert _judge_stub(outcome(open_task, result("4.2", Verdict.FAILED))) != ""


def test_another_right_design_must_pass_in_full() -> None:
    assert _judge_right(outcome(result("4.1", Verdict.PASSED))) == ""
    assert _judge_right(outcome(result("4.1", Verdict.FAILED))) != ""
    assert _judge_right(outcome()) != ""


def test_a_hint_that_holds_a_line_of_the_reference_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hints").mkdir()
    rungs = "question = 'q'\ninvariant = 'i'\nexample = 'e'\nshape = 's'\n"
    told = rungs.replace("'s'", "'first blocks  += end.blocks, then'")
    tables = [f'["{task.id}"]\n{told if task.id == "4.1" else rungs}' for task in TREE.tasks]
    (tmp_path / "hints/radix_tree.toml").write_text("\n".join(tables))
    monkeypatch.setattr(checks, "GRADER", tmp_path)
    check = LabCheck(TREE)
    checks._check_hints(check)
    assert check.problems == ["hint shape of task 4.1 holds the reference's blocks+=end.blocks"]


def test_lines_of_cuda_are_no_hint_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.cu").write_text(CUDA)
    monkeypatch.setattr(checks, "reference_folder", lambda lab: tmp_path)
    assert checks._reference_lines(TREE) == {
        "constinti=threadIdx.x;",
        "if(i<n&&!done)x[i]*=2.5f;",
        "__syncthreads();",
        "total=fmaxf(total,-x[i]);",
    }


@pytest.mark.nightly
def test_the_farm_grades_forked_copies_apart(tmp_path: Path) -> None:
    """A copy that dies or never ends is an outcome, and the next one is graded as if nothing was."""
    source = (reference_folder(TREE) / "radix_tree.py").read_text()
    hostile = {
        "dies": source.replace("        self._tick += 1\n", "        import os; os._exit(3)\n"),
        "loops": source.replace("        self._tick += 1\n", "        while True: pass\n"),
    }
    jobs = [Job("stub", str(write_stub(TREE, tmp_path / "stub")))]
    for name, text in hostile.items():
        folder = tmp_path / name
        write_stub(TREE, folder)
        (folder / "radix_tree.py").write_text(text)
        jobs.append(Job(name, str(folder), exit_first=True, test_seconds=0.5))
    jobs.append(Job("right", str(reference_folder(TREE)), [(["4.3"], 1.0)]))
    with Farm("radix_tree", 2) as farm:
        outcomes = {found.id: found for found in farm.run(jobs)}
    assert _judge_stub(outcomes["stub"]) == ""
    assert outcomes["dies"].problem == "the process died"
    assert "still running" in outcomes["loops"].tests[-1].explanation.problem
    assert _judge_right(outcomes["right"]) == ""


class Answers:
    """A farm that knows what becomes of each submission."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems

    def run(self, jobs):
        for job, problem in zip(jobs, self.problems, strict=True):
            tests = () if problem else (result("4.1", Verdict.PASSED),)
            yield Outcome(job.id, tests, problem, 0.0)


def test_a_mutant_that_is_no_program_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    three = [Mutant("a.cu", "f", f"line {i};", "1 -> 2", "4.1", "") for i in range(3)]
    three.append(Mutant("a.cu", "f", "line 3;", "layout: q_stride -> k_stride", "4.1", ""))
    monkeypatch.setattr(killing, "all_mutants", lambda lab, plan: three)
    monkeypatch.setattr(killing, "survivors", lambda lab: {})
    said = ["cannot be graded: It does not compile: expected ';'", "the process died", "", ""]
    check = LabCheck(TREE)
    killing.check_mutants(check, Answers(said), tmp_path, WHOLE, lambda count: None)
    assert (check.num_mutants, check.killed) == (2, 1)
    assert (check.num_layout, check.layout_killed) == (1, 0)
    assert [mutant for mutant, _ in check.survivors] == three[2:]
    assert "only 0.0% of the mutants of layout are killed" in check.problems


@pytest.mark.parametrize(
    ("count", "argued", "holds"), [(1, 1, True), (19, 2, True), (20, 1, True), (20, 2, False)]
)
def test_of_few_mutants_those_that_are_argued_may_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, argued: int, holds: bool
) -> None:
    mutants = [
        Mutant("a.py", "f", f"line {i}", f"layout: drop .float() ({i})", "4.1", "")
        for i in range(count)
    ]
    monkeypatch.setattr(killing, "all_mutants", lambda lab, plan: mutants)
    reasons = {mutant.key: "Speed alone." for mutant in mutants[:argued]}
    monkeypatch.setattr(killing, "survivors", lambda lab: reasons)
    check = LabCheck(TREE)
    farm = Answers([""] * argued + ["the process died"] * (count - argued))
    killing.check_mutants(check, farm, tmp_path, WHOLE, lambda count: None)
    assert (check.num_layout, check.layout_killed) == (count, count - argued)
    assert (not check.problems) == holds


def test_an_argument_for_a_mutant_that_dies_is_out_of_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutants = [Mutant("a.py", "f", f"line {i}", "1 -> 2", "4.1", "") for i in range(30)]
    monkeypatch.setattr(killing, "all_mutants", lambda lab, plan: mutants)
    reasons = {mutants[0].key: "Speed alone.", ("a.py", "f", "line 99", "1 -> 2"): "Speed alone."}
    monkeypatch.setattr(killing, "survivors", lambda lab: reasons)
    check = LabCheck(TREE)
    farm = Answers(["the process died"] * 30)
    killing.check_mutants(check, farm, tmp_path, WHOLE, lambda count: None)
    assert check.killed == 30
    assert [problem.split("mutant that ")[1] for problem in check.problems] == [
        "a test kills: a.py | f | line 0 | 1 -> 2",
        "does not exist: a.py | f | line 99 | 1 -> 2",
    ]


def test_an_equivalent_mutant_of_layout_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    casts = [
        Mutant("a.py", "f", f"line {i}", f"layout: drop .float() ({i})", "4.1", "")
        for i in range(25)
    ]
    monkeypatch.setattr(killing, "all_mutants", lambda lab, plan: casts)
    reasons = {mutant.key: "Equivalent: float32 already." for mutant in casts[:15]}
    monkeypatch.setattr(killing, "survivors", lambda lab: reasons)
    check = LabCheck(TREE)
    farm = Answers([""] * 15 + ["the process died"] * 10)
    killing.check_mutants(check, farm, tmp_path, WHOLE, lambda count: None)
    assert (check.num_layout, check.layout_killed, check.problems) == (10, 10, [])
