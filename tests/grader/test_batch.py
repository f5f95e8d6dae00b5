"""A class: a row for each student, whatever the others have handed in."""

import csv
import io
import json

import pytest
from rich.console import Console

from grader.batch import (
    class_as_json,
    find_students,
    grade_students,
    print_class,
    write_csv,
)
from grader.grading import Request, run
from grader.runner import Limits
from tests.grader.hostile import RADIX_TREE, part_with
from tests.grader.results import broken, complete, mixed
from yaie.core.errors import ConfigError
from yaie.curriculum.manifest import load_curriculum

LABS = [load_curriculum()["paged_cache"], RADIX_TREE]


@pytest.fixture
def folder(tmp_path):
    """Ann has both labs, Bob one in `labs`, Cy one, Dee none; and some things are no student."""
    for path in ("ann/paged_cache", "ann/radix_tree", "bob/labs/radix_tree", "cy/radix_tree"):
        (tmp_path / path).mkdir(parents=True)
        (tmp_path / path / "__init__.py").touch()
    for path in ("dee/notes", ".git/radix_tree", "__pycache__"):
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / "readme.txt").touch()
    return tmp_path


def rows_of(folder):
    results = {"ann": complete(), "bob": mixed(), "cy": broken()}
    students = find_students(folder, LABS)

    def grade(submissions):
        return [
            results[next(name for name in results if name in s.folder.parts)] for s in submissions
        ]

    return grade_students(students, grade)


def test_students_are_found_with_what_they_handed_in(folder):
    found = {s.name: sorted(s.submissions) for s in find_students(folder, LABS)}
    assert found == {
        "ann": ["paged_cache", "radix_tree"],
        "bob": ["radix_tree"],
        "cy": ["radix_tree"],
        "dee": [],
    }


def test_reports_name_files_from_the_students_folder(folder):
    [bob] = [s for s in find_students(folder, LABS) if s.name == "bob"]
    submission = bob.submissions["radix_tree"]
    assert submission.shown(submission.folder / "node.py") == "labs/radix_tree/node.py"


def test_the_table_tells_what_is_missing_from_what_earned_nothing(folder):
    console = Console(file=io.StringIO(), width=80)
    print_class(console, rows_of(folder), LABS)
    assert console.file.getvalue() == (
        "student    3    4    total\n"
        "ann      100  100  200/200\n"
        "bob        -   25   25/200\n"
        "cy         -    !    0/200\n"
        "dee        -    -    0/200\n"
        "\n"
        "Labs: 3 paged_cache, 4 radix_tree.\n"
        "-: not handed in, counts 0.\n"
        "!: cannot be graded (see --format json), counts 0.\n"
    )


def test_the_file_says_missing_and_broken_in_words(folder, tmp_path):
    write_csv(tmp_path / "class.csv", rows_of(folder), LABS)
    with (tmp_path / "class.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [
            ["student", "paged_cache", "radix_tree", "total", "max"],
            ["ann", "100", "100", "200", "200"],
            ["bob", "missing", "25", "25", "200"],
            ["cy", "missing", "broken", "0", "200"],
            ["dee", "missing", "missing", "0", "200"],
        ]


def test_json_of_a_class_has_every_lab_of_every_student(folder):
    table = json.loads(class_as_json(rows_of(folder), LABS, seed=3))
    by_name = {entry["student"]: entry for entry in table["submissions"]}
    assert by_name["bob"]["missing"] == ["paged_cache"]
    assert by_name["bob"]["labs"][0]["tasks"][0]["verdict"] == "passed"
    assert (by_name["ann"]["points"], by_name["ann"]["max_points"]) == (200, 200)


@pytest.mark.parametrize("name", ["dee", "nowhere"])
def test_a_folder_without_submissions_is_refused(folder, name):
    with pytest.raises(ConfigError, match=r"holds no submission|is not a folder"):
        find_students(folder / name, LABS)


@pytest.mark.slow
def test_a_class_is_graded_in_parallel_and_one_crash_stays_in_its_row(tmp_path):
    part_with(tmp_path / "good")
    part_with(tmp_path / "bad", top="import os; os._exit(1)")
    part_with(tmp_path / "ugly/labs", "import ctypes; ctypes.string_at(0)")
    request = Request(
        lab="radix_tree",
        task="3",
        submissions=tmp_path,
        csv=tmp_path / "class.csv",
        jobs=2,
        limits=Limits(),
    )
    out = Console(file=io.StringIO(), width=80)
    assert run(request, out, Console(file=io.StringIO())) == 0
    rows = [line.split(",")[:2] for line in (tmp_path / "class.csv").read_text().splitlines()[1:]]
    assert rows == [["bad", "broken"], ["good", "15"], ["ugly", "0"]]
    assert "good     15" in out.file.getvalue()
