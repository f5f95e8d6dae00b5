"""What a learner reads, to the letter: also in a file and at 80 columns."""

import ast
import io
from dataclasses import replace

import pytest
from rich.console import Console

from grader.report.lines import clean, folded
from grader.report.next import chapter_address, sheet_address
from grader.report.tables import print_progress
from grader.report.text import print_report
from grader.verdict import Explanation, LabResult, TaskResult, Verdict
from tests.grader.results import WRONG, broken, complete, graded, mixed, result_of
from yaie.curriculum.manifest import load_curriculum

MIXED = """\
Lab 4: Radix tree   25 of 100 points   3.2 s

  ✓ 4.1  Find the longest cached prefix  25/25
  ✗ 4.2  Insert                           0/20  failed
  · 4.3  Split                            0/15  waits for task 4.2
  ✗ 4.4  Lock and unlock                  0/15  failed
  ? 4.5  Evict the least recently used    0/25  not verified here

2 tasks that passed now fail: 4.2, 4.4

Task 4.2: Insert
  After any script of inserts, the tree finds exactly what was filed.
  how many blocks insert says were there already: not as expected
    expected  2
    got       3

  The calls that lead there (an account, not a program):
    tree = RadixTree(block_size=1)
    tree.insert([0, 1], [0, 1])  # -> (3, node1)

  Before the last call:
    0 blocks, 0 of them evictable

  After it:
    2 blocks, 2 of them evictable

  Only whole blocks count.

  Run it again; the file makes these calls, and all that is around them:
    .venv/bin/python .yaie/scratch/radix_tree_4_2.py

Task 4.4: It was still running after 10 seconds.
Task 4.5: Needs a GPU.

The end of what it printed:
  printed

Next: task 4.2, Insert.
  a hint    make hint LAB=radix_tree TASK=4.2
  again     make grade LAB=radix_tree TASK=4.2
  chapter   {chapter}
  sheet     book/src/labs/radix_tree.md
"""

COMPLETE_END = """\
Complete. The engine runs on your part from now on: `yaie bench prefix` shows a
shared prompt found in your tree instead of computed.
  see it    make demo LAB=radix_tree
  try it    yaie chat
  compare   solutions/radix_tree has the reference
"""

BROKEN = """\
Lab 4: Radix tree   0 of 100 points   3.2 s

  The part can be read as Python.
  SyntaxError: bad
  at radix_tree/node.py, line 1

1 task that passed now fails: 4.1
"""

PROGRESS = """\
  lab           title       tasks             points  seconds
  4 radix_tree  Radix tree  ✓✗·✗?             25/100      3.2
  4 radix_tree  Radix tree  cannot be graded   0/100

25 of 200 points.   ✓ passed   ✗ failed   · not implemented yet   ? not verified here
radix_tree: 1 task that passed now fails: 4.2

Radix tree. Next: task 4.2, Insert.
  in full   make grade LAB=radix_tree
"""


def printed(result, withdrawn=(), impl="labs", passed=(), earlier=(), **options):
    console = Console(file=io.StringIO(), width=80, **options)
    print_report(console, result, withdrawn, impl, passed, earlier)
    return console.file.getvalue()


def test_a_report_of_every_verdict_reads_like_this():
    chapter = chapter_address("The radix tree")
    assert printed(mixed(), ("4.2", "4.4")) == MIXED.format(chapter=chapter)


def test_no_line_ends_in_spaces_or_is_wider_than_the_terminal():
    for lab in load_curriculum().labs:
        result = result_of()
        lines = printed(result).splitlines() + printed(mixed()).splitlines()
        assert [line for line in lines if line != line.rstrip()] == [], lab.key


def test_the_longest_title_and_remark_fit_into_80_columns():
    tasks = [task for lab in load_curriculum().labs for task in lab.tasks]
    longest = max(len(f"  ✓ {task.id}  {task.title}") for task in tasks)
    remark = max(len(verdict.value) for verdict in Verdict)
    assert longest + len("  25/25  ") + remark <= 80


def test_a_complete_lab_says_what_plugging_it_in_changes():
    assert printed(complete()).endswith(COMPLETE_END)


def test_a_complete_reference_is_not_called_the_learners_part():
    assert printed(complete(), impl="solutions").splitlines()[-1] == (
        "Complete. This was IMPL=solutions: your own part is graded without it."
    )


def test_a_complete_grading_of_files_that_changed_meanwhile_does_not_count():
    assert "but the files changed meanwhile" in printed(complete(digest=""))


def after_one_task(passed, earlier=(), **more):
    """The end of a report on task 4.2 alone, which passes. passed, earlier: by the record."""
    result = result_of(graded("4.2", Verdict.PASSED), only=["4.2"], **more)
    return printed(result, passed=passed, earlier=earlier).partition("\nNext: ")[2].splitlines()


def test_after_one_task_comes_the_next_that_is_not_written():
    places = {"4.1": ("tree.py: peek (line 3)",), "4.4": ("tree.py: lock (line 9)",)}
    told = after_one_task(["4.1", "4.2", "4.3"], open_places=places)
    assert told[:3] == [
        "task 4.4, Lock and unlock.",
        "  to write  tree.py: lock (line 9)",
        "  a hint    make hint LAB=radix_tree TASK=4.4",
    ]
    assert told[3] == "  again     make grade LAB=radix_tree TASK=4.4"


def test_tasks_that_are_written_but_have_no_pass_are_graded_with_the_whole_lab():
    """They passed before the last edit, or were never graded: one command finds out."""
    assert after_one_task(["4.1", "4.2", "4.3"]) == [
        "the whole lab, make grade LAB=radix_tree",
        "  tasks 4.4, 4.5 have not been graded on these files.",
    ]
    assert after_one_task(["4.2", "4.3"], earlier=["4.1", "4.5"]) == [
        "the whole lab, make grade LAB=radix_tree",
        "  tasks 4.1, 4.5 passed on earlier files; a pass counts for the files that were",
        "  graded.",
        "  task 4.4 has not been graded on these files.",
    ]


def test_the_last_task_of_a_lab_completes_it():
    result = result_of(graded("4.2", Verdict.PASSED), only=["4.2"])
    everything = [task.id for task in result.lab.tasks]
    assert printed(result, passed=everything).endswith(COMPLETE_END)


def test_a_task_that_is_not_written_names_its_places_and_one_that_is_wrong_does_not():
    places = {"4.1": ("labs/radix_tree/radix_tree.py: peek (line 3), match_prefix (line 9)",)}
    open_task = result_of(graded("4.1", Verdict.NOT_IMPLEMENTED), open_places=places)
    told = "  to write  labs/radix_tree/radix_tree.py: peek (line 3), match_prefix (line 9)"
    assert told in printed(open_task).splitlines()
    wrong = result_of(graded("4.1", Verdict.FAILED, WRONG), open_places=places)
    assert "to write" not in printed(wrong)


def test_many_places_are_wrapped_under_each_other():
    names = ", ".join(f"function_{i} (line {i})" for i in range(9))
    result = result_of(
        graded("4.1", Verdict.NOT_IMPLEMENTED), open_places={"4.1": (f"a.py: {names}",)}
    )
    lines = printed(result).splitlines()
    assert (
        max(map(len, lines[lines.index("Next: task 4.1, Find the longest cached prefix.") :])) <= 80
    )


def complete_of(key):
    lab = load_curriculum()[key]
    tests = (graded(task.id, Verdict.PASSED) for task in lab.tasks)
    tasks = tuple(TaskResult(task, (test,)) for task, test in zip(lab.tasks, tests, strict=True))
    return LabResult(lab, tasks, digest="d")


def test_a_part_that_engines_need_at_times_says_when():
    told = " ".join(printed(complete_of("tensor_parallel")).split())
    assert "Complete. On several ranks the engine runs on your part from now on: " in told
    told = " ".join(printed(complete_of("quantization")).split())
    assert "Complete. With a quantized model the engine runs on your part from now on: " in told


@pytest.mark.parametrize(("key", "backend"), [("triton_ops", "triton"), ("cuda_ops", "cuda")])
def test_kernels_say_where_they_run_and_how_to_try_them(key, backend, monkeypatch):
    monkeypatch.setattr("grader.report.next.has_gpu", lambda: False)
    text = printed(complete_of(key))
    assert f"  try it    make chat BACKEND={backend}" in text.splitlines()
    assert "The engine runs on your part from now on" not in text
    flat = " ".join(text.split())
    assert f"runs on PyTorch unless it is asked for the backend {backend}" in flat
    monkeypatch.setattr("grader.report.next.has_gpu", lambda: True)
    assert "This machine has none" not in " ".join(printed(complete_of(key)).split())


def test_a_program_is_called_one():
    result = result_of(graded("4.2", Verdict.FAILED, replace(WRONG, is_program=True)))
    assert (
        "  The calls that lead there, to paste into .venv/bin/python:"
        in printed(result).splitlines()
    )


def test_a_call_that_is_too_wide_stays_a_statement():
    call = "filters.apply(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), 'a, (b', key={'x': (1, 2)})  # -> None"
    lines = folded(call, 40)
    assert lines == [
        "filters.apply(",
        "    torch.tensor([[1.0, 2.0], [3.0, 4.0]]),",
        "    'a, (b',",
        "    key={'x': (1, 2)},",
        ")",
        "    # -> None",
    ]
    assert ast.unparse(ast.parse("\n".join(lines))) == ast.unparse(ast.parse(call))
    assert folded(call, 200) == [call]


def test_a_part_that_is_not_python_gets_file_line_and_no_advice():
    assert printed(broken(), ("4.1",)) == BROKEN


def test_a_task_without_tests_says_so():
    assert "4.1  Find the longest cached prefix  0/25  has no tests yet" in printed(result_of())


def test_what_fails_comes_before_what_is_not_written():
    result = result_of(
        graded("4.1", Verdict.NOT_IMPLEMENTED),
        graded("4.2", Verdict.FAILED, Explanation("c", "p")),
    )
    assert "Next: task 4.2" in printed(result)


def test_the_next_task_is_none_that_waits_for_another():
    result = result_of(
        graded("4.1", Verdict.NOT_IMPLEMENTED, waits_for="4.2"),
        graded("4.2", Verdict.NOT_IMPLEMENTED),
    )
    assert "Next: task 4.2" in printed(result)


def test_what_a_task_graded_alone_waits_for_is_the_next_one():
    result = result_of(graded("4.3", Verdict.NOT_IMPLEMENTED, waits_for="4.2"), only=["4.3"])
    assert "Next: task 4.2" in printed(result)


def test_a_check_that_fails_inside_a_call_is_no_error_of_the_call():
    why = replace(
        WRONG, script=("core.step()  # raises Mismatch", "core.step()  # raises KeyError")
    )
    text = printed(result_of(graded("4.1", Verdict.FAILED, why)))
    assert "core.step()  # where a check fails\n" in text
    assert "core.step()  # raises KeyError\n" in text


def test_a_folder_is_named_in_the_command_that_grades_again():
    assert "make grade LAB=radix_tree TASK=4.2 IMPL=mine" in printed(mixed(), impl="mine")


@pytest.mark.parametrize("no_color", [True, False])
def test_colour_is_for_terminals_that_want_it(no_color, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    text = printed(mixed(), force_terminal=True, no_color=no_color)
    assert ("\x1b[31m" in text) is not no_color


def test_no_text_can_move_the_cursor_and_no_character_of_a_value_vanishes():
    assert clean("\x1b[2Ja\tb\x7f\r\n\x9bc") == "\\x1b[2Ja    b\\x7f\\r\n\\x9bc"


def test_control_characters_of_a_value_are_escapes_in_a_report():
    why = Explanation("c", 'string() refuses "\x7f"', "a\x00b", "ab", script=("f('\x1b')",))
    text = printed(result_of(graded("4.1", Verdict.FAILED, why)))
    assert 'string() refuses "\\x7f"\n' in text
    assert "expected  a\\x00b\n" in text
    assert "    f('\\x1b')\n" in text


def test_what_a_part_prints_loses_its_colours_and_no_other_character():
    failed = graded("4.1", Verdict.FAILED, WRONG)
    text = printed(result_of(failed, output="\x1b[31mred\x1b[0m\x7f\n"))
    assert text.partition("The end of what it printed:\n")[2].startswith("  red\\x7f\n")


def test_progress_is_a_line_for_each_lab_and_one_thing_to_do():
    console = Console(file=io.StringIO(), width=80)
    print_progress(console, [mixed(), broken()], {"radix_tree": ("4.2",)})
    assert console.file.getvalue().startswith(PROGRESS)


def test_progress_of_a_finished_path():
    console = Console(file=io.StringIO(), width=80)
    print_progress(console, [complete()], {})
    assert console.file.getvalue().endswith("Every lab is complete.\n")


def test_a_chapter_is_found_by_its_title(tmp_path):
    (tmp_path / "book/src/memory").mkdir(parents=True)
    (tmp_path / "book/src/memory/tree.md").write_text("# The radix tree\n\nText.\n")
    address = chapter_address("The radix tree", tmp_path)
    assert address == "The radix tree (book/src/memory/tree.md, or make docs-serve)"
    assert chapter_address("The scheduler", tmp_path) == "The scheduler"


def test_a_sheet_is_named_where_the_book_is(tmp_path):
    lab = load_curriculum()["radix_tree"]
    assert sheet_address(lab, tmp_path) == ()
    (tmp_path / "book/src/labs").mkdir(parents=True)
    (tmp_path / "book/src/labs/radix_tree.md").touch()
    assert sheet_address(lab, tmp_path) == ("book/src/labs/radix_tree.md",)
    assert all(sheet_address(lab) for lab in load_curriculum().labs)


@pytest.mark.parametrize(("width", "head"), [(60, "lab tasks points"), (40, "lab points")])
def test_progress_fits_a_narrow_terminal_with_fewer_columns(width, head):
    file = io.StringIO()
    tasks = [tuple(TaskResult(task, ()) for task in lab.tasks) for lab in load_curriculum().labs]
    results = [LabResult(*both) for both in zip(load_curriculum().labs, tasks, strict=True)]
    print_progress(Console(file=file, width=width), results, {})
    table = file.getvalue().split("\n\n")[0].splitlines()
    assert table[0].split() == head.split()
    assert len(table) == len(results) + 1
    assert max(map(len, table)) <= width
