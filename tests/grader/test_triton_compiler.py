"""What Triton's interpreter runs and its compiler refuses is found without a GPU, and put in words."""

import ast
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("triton")

from grader.kit import Fault, compiled
from grader.kit.session import SESSION
from grader.report.text import open_lines
from grader.runner import grade_lab
from grader.selfcheck.variants import write_stub
from grader.submission import Submission
from grader.triton_compiler import owners
from grader.triton_words import explain
from grader.verdict import LabResult, Verdict
from tests.grader.results import graded, result_of
from yaie.curriculum.manifest import ROOT, load_curriculum

LAB = load_curriculum()["triton_ops"]


def told(node: str, message: str) -> str:
    return explain(getattr(ast, node)(), message).sentence


@pytest.mark.parametrize(
    ("node", "message", "sentence"),
    [
        ("Break", "unsupported AST node type: Break", "`break` is not supported"),
        ("Continue", "unsupported AST node type: Continue", "`continue` is not supported"),
        ("If", "Cannot have `return` statements inside `while`", "`return` inside a loop"),
        ("Compare", "simultaneous multiple comparison is not supported", "comparisons are chained"),
        (
            "Attribute",
            "AttributeError(\"'tuple' object has no attribute append\")",
            "Python's lists",
        ),
        ("Attribute", "AttributeError(\"'tuple' object has no attribute pop\")", "Python's lists"),
        # Triton 3.6, in Python up to 3.13 and in 3.14.
        ("Attribute", "ValueError(\"'append' is not in list\")", "Python's lists"),
        ("Attribute", "ValueError('list.index(x): x not in list')", "Python's lists"),
        ("Name", "NameError('enumerate is not defined')", "Python's `enumerate`"),
        ("Name", "NameError('total is not defined')", "total has no value on every way"),
        ("Call", "arange's range must be a power of 2", "not a power of two"),
        (
            "For",
            "Loop-carried variable s has initial type <['16'], fp32> but is re-assigned to fp16 in loop",
            "s is a tile [16] of fp32 before the loop and a scalar fp16 at the end",
        ),
        (
            "If",
            "Mismatched type for acc between then block (fp32[constexpr[64]]) and else block (int32)",
            "acc is a tile [64] of fp32 on one way through an `if` and a scalar int32 on the other",
        ),
    ],
)
def test_a_complaint_of_the_compiler_names_the_construct(node, message, sentence):
    assert sentence in told(node, message)


def test_a_complaint_that_no_entry_knows_is_quoted():
    assert told("Call", "something  new") == "Triton says: something new"


def test_a_line_belongs_to_the_task_whose_region_the_reference_has_in_its_function():
    found = owners(Submission(LAB, ROOT / "solutions" / LAB.key))
    assert found["norms.py", "normalise"] == "9.1"
    assert found["rope.py", "turn_heads"] == "9.4"
    assert found["layer_kernels.py", "rope_and_store"] == "9.6"
    assert found["rope.py", "copy_heads"] == ""


def written(tmp_path: Path, tasks: list[str], **edits: tuple[str, str]) -> Submission:
    """The lab with these tasks filled in. edits: of a file, what is replaced by what."""
    folder = write_stub(LAB, tmp_path / LAB.key, tasks)
    for name, (old, new) in edits.items():
        file = folder / f"{name}.py"
        text = file.read_text("utf-8")
        assert text.count(old) == 1
        file.write_text(text.replace(old, new), "utf-8")
    return Submission(LAB, folder, tmp_path)


def grade(submission: Submission, task: str) -> LabResult:
    return grade_lab(submission, tasks=[task], shrink=False)


@pytest.mark.nightly
@pytest.mark.slow
def test_a_break_that_the_interpreter_runs_fails_its_task_with_kernel_and_line(tmp_path):
    loop = "        starts = rows // heads * token_stride"
    leaves = "        if tile * ROWS >= num_rows:\n            break\n"
    submission = written(tmp_path, ["9.1", "9.3"], norms=(loop, leaves + loop))
    failed = grade(submission, "9.1").first_failed
    assert failed is not None
    assert failed.explanation is not None
    assert failed.explanation.problem == (
        "rms_norm_kernel runs in the interpreter but does not compile for a GPU: `break` is not "
        "supported in a compiled loop."
    )
    assert failed.explanation.where.startswith("triton_ops/norms.py, line ")
    assert failed.explanation.where.endswith(", in rms_norm_kernel\n    break")
    assert "`while`" in failed.explanation.why
    assert grade(submission, "9.3").points == 15


@pytest.mark.nightly
@pytest.mark.slow
def test_a_kernel_whose_helper_is_open_is_not_to_blame_and_the_report_says_so(tmp_path):
    result = grade(written(tmp_path, ["9.2"]), "9.2")
    assert result.points == 15
    assert result.left_open == (
        "whether add_rms_norm_kernel compiles for a GPU: it waits for task 9.1",
    )


@pytest.fixture
def compiler(monkeypatch, tmp_path):
    """Runs a line of Python in place of the compiler's process; it may print to the order's `fd`."""

    def run(line: str) -> None:
        program = tmp_path / "python"
        head = (
            f"#!{sys.executable}\nimport json, os, signal, sys\norder = json.loads(sys.argv[3])\n"
        )
        program.write_text(head + line + "\n", "utf-8")
        program.chmod(0o755)
        monkeypatch.setattr(compiled, "_running", None)
        monkeypatch.setattr(SESSION, "left_open", "")
        with monkeypatch.context() as patched:
            patched.setattr(sys, "executable", str(program))
            compiled.wait(REFERENCE)

    return run


REFERENCE = Submission(LAB, ROOT / "solutions" / LAB.key)
LAUNCH = {"task": "9.1", "kernel": "rms_norm_kernel", "blame": "9.1", "file": "", "why": ""}


def test_where_triton_cannot_compile_the_check_holds_and_says_what_is_not_verified(compiler):
    compiler("sys.exit('RuntimeError: 0 compatible backends')")
    compiled.expect_compiles(REFERENCE, "9.1")
    assert SESSION.left_open == (
        "whether the kernels compile for a GPU: Triton cannot compile here: "
        "RuntimeError: 0 compatible backends"
    )


def test_a_compiler_that_crashes_names_the_kernel_that_it_was_at(compiler):
    line = json.dumps(LAUNCH | {"is_begun": True}) + "\n"
    compiler(f"os.write(order['fd'], {line.encode()!r}); os.kill(os.getpid(), signal.SIGSEGV)")
    with pytest.raises(Fault, match="crashes on rms_norm_kernel"):
        compiled.expect_compiles(REFERENCE, "9.1")
    compiled.expect_compiles(REFERENCE, "9.2")
    assert "has crashed on rms_norm_kernel" in SESSION.left_open


def test_a_slow_machine_is_no_fault_of_the_part(compiler, monkeypatch):
    monkeypatch.setattr(compiled, "WAIT_SECONDS", 0.2)
    compiler("import time; time.sleep(60)")
    compiled.expect_compiles(REFERENCE, "9.1")
    assert "not compiled them within 0.2 seconds" in SESSION.left_open


def test_only_what_is_written_is_compiled(tmp_path, monkeypatch):
    started: list[list[str]] = []
    monkeypatch.setattr(compiled, "_Running", lambda folder, order: started.append(order["tasks"]))
    compiled.start(written(tmp_path / "stub", []))
    assert not started
    compiled.start(written(tmp_path / "half", ["9.2", "9.5"]))
    assert started == [["9.2", "9.5"]]


def test_a_report_has_a_line_for_what_a_passing_test_left_open():
    passed = graded("4.1", Verdict.PASSED)
    result = result_of(replace(passed, left_open="whether x compiles"))
    assert [line.plain for line in open_lines(result, 80)] == [
        "  ? not verified here: whether x compiles"
    ]
