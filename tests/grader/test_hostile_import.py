"""A part that cannot be imported: what is wrong and where, nothing more."""

import pytest

from grader.report.text import report_lines
from grader.verdict import Verdict
from tests.grader.hostile import IMPATIENT, TASK, grade_quickly, part_with, verdicts, why


def broken(result):
    assert result.problem is not None
    assert result.points == 0
    return result.problem


NOT_PYTHON = {
    "a missing colon": ("def f()\n    pass\n", "SyntaxError: expected ':'", "def f()", 7),
    "a bad indent": ("if True:\nx = 1\n", "IndentationError", "x = 1", 0),
    "tabs and spaces": ("if True:\n        x = 1\n\ty = 2\n", "TabError", "y = 2", 0),
}


@pytest.mark.nightly
@pytest.mark.parametrize("case", NOT_PYTHON)
def test_what_is_not_python_is_shown_with_file_line_and_caret(tmp_path, case):
    source, problem, line, column = NOT_PYTHON[case]
    submission = part_with(tmp_path)
    (submission.folder / "node.py").write_text(source)
    found = broken(grade_quickly(submission))
    assert found.problem.startswith(problem)
    shown, text, caret = found.where.splitlines()
    assert shown.startswith("radix_tree/node.py, line ")
    assert text == f"    {line}"
    assert caret.endswith("^")
    if column:
        assert caret == "    " + " " * column + "^"


def test_a_report_on_what_is_not_python_says_nothing_else(tmp_path):
    submission = part_with(tmp_path)
    (submission.folder / "node.py").write_text("def f()\n    pass\n")
    result = grade_quickly(submission)
    lines = [line.plain for line in report_lines(result, 80)]
    assert lines[1:] == [
        "",
        "  The part can be read as Python.",
        "  SyntaxError: expected ':'",
        "  at radix_tree/node.py, line 1",
        "      def f()",
        "             ^",
    ]


def test_a_file_of_bytes_is_not_python(tmp_path):
    submission = part_with(tmp_path)
    (submission.folder / "node.py").write_bytes(b"x = '\xff\xfe'\n")
    assert "SyntaxError" in broken(grade_quickly(submission)).problem


def test_an_error_while_importing_names_its_line(tmp_path):
    found = broken(grade_quickly(part_with(tmp_path, top="import no_such_module")))
    assert found.problem == "ModuleNotFoundError: No module named 'no_such_module'"
    assert "radix_tree/radix_tree.py, line 1" in found.where


@pytest.mark.nightly
def test_a_part_that_ends_the_program_while_importing(tmp_path):
    found = broken(grade_quickly(part_with(tmp_path, top="raise SystemExit")))
    assert found.problem == "It ended the program (sys.exit)."


@pytest.mark.slow
def test_a_part_that_kills_its_process_while_importing(tmp_path):
    found = broken(grade_quickly(part_with(tmp_path, top="import os; os._exit(0)")))
    assert (found.claim, found.problem) == (
        "The part can be imported.",
        "It ended the whole process (exit status 0).",
    )


@pytest.mark.slow
def test_an_import_without_end_names_its_line(tmp_path):
    found = broken(grade_quickly(part_with(tmp_path, top="while True: pass"), IMPATIENT))
    assert found.problem == "It was still running after 1 seconds."
    assert "radix_tree/radix_tree.py, line 1" in found.where


@pytest.mark.nightly
@pytest.mark.slow
def test_heavy_imports_are_the_parts_own_business(tmp_path):
    top = "import transformers, scipy.stats, fastapi, http.server"
    result = grade_quickly(part_with(tmp_path, top=top), tasks=(TASK,))
    assert verdicts(result) == {TASK: Verdict.PASSED}


@pytest.mark.nightly
def test_a_class_that_is_not_there_is_named(tmp_path):
    submission = part_with(tmp_path)
    (submission.folder / "__init__.py").write_text("")
    result = grade_quickly(submission, tasks=(TASK,))
    assert why(result).problem == "labs.radix_tree has no RadixTree."


@pytest.mark.nightly
def test_a_check_that_is_missing_is_named(tmp_path):
    submission = part_with(tmp_path)
    file = submission.folder / "radix_tree.py"
    file.write_text(file.read_text().replace("def check(", "def examine("))
    result = grade_quickly(submission, tasks=("4.3", "4.4"))
    failed = [task for task in ("4.3", "4.4") if verdicts(result)[task] is Verdict.FAILED]
    assert failed
    assert why(result, failed[0]).problem == "RadixTree has no check."
    assert "yaie/core/contracts" in why(result, failed[0]).why
