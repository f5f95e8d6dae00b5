"""Hints: a rung a call, never more; after a pass, the reference instead."""

import itertools

import pytest

from grader.hints import MARGIN, _unwrap, give_hint
from tests.grader.results import RADIX_TREE
from yaie.core.compat import tomllib
from yaie.core.errors import ConfigError
from yaie.curriculum.manifest import ROOT
from yaie.curriculum.progress import LabRecord, Progress, part_digest

FILE = """
["4.1"]
question = "Where does a match end?"
invariant = "What is found is a prefix."
example = '''
A drawing:
  root -- [1, 1]
'''
shape = "A loop over blocks."
"""


@pytest.fixture
def root(tmp_path):
    """A checkout with hints for task 4.1, an empty part and a reference of two regions."""
    for folder in ("grader/hints", "labs/radix_tree", "solutions/radix_tree"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "grader/hints/radix_tree.toml").write_text(FILE)
    (tmp_path / "labs/radix_tree/__init__.py").touch()
    (tmp_path / "solutions/radix_tree/tree.py").write_text(
        "def a():\n    # BEGIN SOLUTION 4.1\n    return 1\n    # END SOLUTION\n"
        "def b():\n    # BEGIN SOLUTION 4.2\n    return 2\n    # END SOLUTION\n"
    )
    return tmp_path


def hint(root, task="", **options):
    return "\n".join(line.plain for line in give_hint(RADIX_TREE, task, root=root, **options))


def note_passed(root, *tasks):
    progress = Progress.load(root)
    digest = part_digest(root / "labs/radix_tree")
    progress.records["radix_tree"] = LabRecord(digest, tasks, 0, "2026-01-01T00:00:00+00:00")
    progress.save()


def test_every_call_climbs_one_rung(root):
    first, second = hint(root, "4.1"), hint(root, "1")
    assert "Hint 1 of 4, a question" in first
    assert "What is found is a prefix" not in first
    assert "Hint 1 of 4, a question (seen before)" in second
    assert "Hint 2 of 4, the invariant\n  What is found is a prefix." in second
    assert Progress.load(root).hints == {"4.1": 2}


def test_only_the_new_rung_is_bright(root):
    hint(root, "4.1")
    lines = give_hint(RADIX_TREE, "4.1", root=root)
    dim = {line.plain.strip() for line in lines if "dim" in str(line.style)}
    assert "Where does a match end?" in dim
    assert "What is found is a prefix." not in dim


def test_the_last_rung_says_so_and_names_the_chapter(root):
    texts = [hint(root, "4.1") for _ in range(5)]
    assert texts[3].endswith("That was the last one. The chapter: The radix tree")
    (root / "book/src/labs").mkdir(parents=True)
    (root / "book/src/labs/radix_tree.md").touch()
    assert hint(root, "4.1").endswith("a note on the task: book/src/labs/radix_tree.md")
    assert texts[4].count("(seen before)") == 4
    assert Progress.load(root).hints == {"4.1": 4}


def test_a_drawing_keeps_its_lines(root):
    texts = [hint(root, "4.1") for _ in range(3)]
    assert "  A drawing:\n    root -- [1, 1]\n" in texts[2]


def test_again_shows_what_was_seen_and_no_more(root):
    assert "No hint was taken yet" in hint(root, "4.1", again=True)
    hint(root, "4.1")
    again = hint(root, "4.1", again=True)
    assert "Hint 1 of 4, a question (seen before)" in again
    assert "Hint 2" not in again
    assert Progress.load(root).hints == {"4.1": 1}


def test_without_a_task_it_is_the_first_that_has_not_passed(root):
    assert hint(root).startswith("Task 4.1: ")
    note_passed(root, "4.1")
    with pytest.raises(ConfigError, match=r"task 4\.2 of lab radix_tree has no hints yet"):
        hint(root)


def test_after_a_pass_it_says_where_the_reference_is(root):
    note_passed(root, "4.1")
    assert hint(root, "4.1").splitlines() == [
        "Task 4.1 has passed. Compare with the reference:",
        "  solutions/radix_tree/tree.py, line 3",
    ]
    assert Progress.load(root).hints == {}


def test_a_pass_of_another_source_is_none(root):
    note_passed(root, "4.1")
    (root / "labs/radix_tree/__init__.py").write_text("x = 1\n")
    assert "Hint 1 of 4" in hint(root, "4.1")


def test_a_complete_lab_has_no_hints_but_the_reference(root):
    note_passed(root, *(task.id for task in RADIX_TREE.tasks))
    assert (
        hint(root) == "Every task of lab radix_tree has passed. The reference: solutions/radix_tree"
    )


def test_a_task_of_another_lab_is_refused(root):
    with pytest.raises(ConfigError, match=r"has no task '3\.1'"):
        hint(root, "3.1")


def test_lines_that_the_margin_of_the_file_broke_are_joined_and_short_ones_are_not() -> None:
    broken = "word " * 16
    assert _unwrap(f"{broken}\nand on\nnew") == f"{broken} and on\nnew"
    assert _unwrap(f"{broken}\n\nnext") == f"{broken}\n\nnext"


@pytest.mark.parametrize(
    "file", sorted((ROOT / "grader/hints").glob("*.toml")), ids=lambda f: f.stem
)
def test_steps_of_a_hint_are_indented_so_that_no_two_run_together(file):
    """Page and terminal fill the lines of a hint anew, except where one is indented."""
    for task, rungs in tomllib.loads(file.read_text("utf-8")).items():
        for rung, text in rungs.items():
            lines = text.strip("\n").split("\n")
            if not any(line.startswith(" ") for line in lines):
                short = [
                    line
                    for line, after in itertools.pairwise(lines)
                    if line and after and len(line) <= MARGIN
                ]
                assert not short, f"{task}, {rung}"


def test_after_a_pass_the_reference_is_named_in_cuda_files_too(root):
    (root / "solutions/radix_tree/walk.cu").write_text(
        "__global__ void walk() {\n    // BEGIN SOLUTION 4.1\n    go();\n    // END SOLUTION\n}\n"
    )
    note_passed(root, "4.1")
    assert "solutions/radix_tree/walk.cu, line 3" in hint(root, "4.1")
