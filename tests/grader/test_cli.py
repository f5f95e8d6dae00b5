"""The grader's command line: what it refuses, where it writes, and what it exits with."""

import json
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest

from grader import runner
from grader.runner import grade_lab
from grader.submission import find_submission, submission_in
from tests.grader.hostile import RADIX_TREE, part_with
from yaie.curriculum.manifest import ROOT

COMMANDS = ("grade", "watch", "hint", "reset", "selfcheck")


def grader(*arguments, cwd=ROOT, **environment):
    return subprocess.run(
        [sys.executable, "-m", "grader", *arguments],
        cwd=cwd, env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A folder with the reference's radix tree."""
    folder = tmp_path_factory.mktemp("good")
    part_with(folder)
    return folder


REFUSED = {
    "a task without its lab": (
        ("grade", "--task", "4.2"),
        "a task needs its lab: make grade LAB=radix_tree TASK=4.2",
    ),
    "a task of another lab": (
        ("grade", "paged_cache", "--task", "4.2"),
        "lab paged_cache has no task '4.2'; it has 3.1,",
    ),
    "a lab that does not exist": (
        ("grade", "radix"),
        "there is no lab 'radix'; choose from sampler,",
    ),
    "a folder without the part": (
        ("grade", "radix_tree", "--impl", "book"),
        "holds no part radix_tree",
    ),
    "a folder without any part": (("grade", "--impl", "book"), "holds no part sampler"),
    "a format that does not exist": (
        ("grade", "--format", "xml"),
        "unknown format 'xml'; choose from",
    ),
    "a class for CI": (("grade", "--submissions", ".", "--format", "junit"), "prints text or json"),
    "a table without a class": (("grade", "--csv", "x.csv"), "--csv goes with --submissions"),
    "a folder of nobody": (("grade", "--submissions", "book"), "book holds no submission"),
    "an output that cannot be": (
        ("grade", "--output", "no/such/folder/x"),
        "No such file or directory",
    ),
    "a reset that nobody confirms": (("reset", "radix_tree"), "reset asks first"),
    "a hint for no task": (("hint", "radix_tree", "--task", "9"), "lab radix_tree has no task '9'"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_makes_no_sense_is_one_line_and_status_2(what):
    arguments, message = REFUSED[what]
    run = grader(*arguments)
    assert (run.returncode, run.stdout) == (2, "")
    [line] = run.stderr.splitlines()
    assert line.startswith("Error: ")
    assert message in line


def test_help_lists_the_commands_without_importing_torch():
    program = (
        "import sys\nfrom grader.cli import main\nsys.argv = ['grader', '--help']\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "assert 'torch' not in sys.modules\n"
    )
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert all(command in run.stdout for command in COMMANDS)


def test_a_folder_is_meant_as_seen_from_the_caller(good):
    run = grader("grade", "radix_tree", "--task", "3", "--impl", "radix_tree", cwd=good)
    assert run.returncode == 0, run.stderr
    assert "✓ 4.3  Split  15/15" in run.stdout
    assert run.stderr == ""


def test_a_report_has_no_colour_where_there_is_no_terminal(good):
    run = grader("grade", "radix_tree", "--task", "3", "--impl", str(good))
    assert "\x1b" not in run.stdout


@pytest.mark.nightly
def test_json_and_junit_go_to_a_file_or_to_stdout(good, tmp_path):
    arguments = ("grade", "radix_tree", "--task", "3", "--impl", str(good))
    run = grader(*arguments, "--format", "json", "--seed", "5")
    table = json.loads(run.stdout)
    assert (table["seed"], table["points"], table["max_points"]) == (5, 15, 15)
    run = grader(*arguments, "--format", "junit", "--output", str(tmp_path / "junit.xml"))
    assert (run.returncode, run.stdout) == (0, "")
    root = ET.parse(tmp_path / "junit.xml").getroot()
    assert root.get("failures") == "0"
    assert int(root.get("tests")) > 0


@pytest.mark.nightly
@pytest.mark.slow
def test_a_folder_with_some_labs_is_graded_for_those_and_the_rest_is_missing(good):
    run = grader("grade", "--impl", str(good), "--format", "json")
    labs = {lab["lab"]: lab for lab in json.loads(run.stdout)["labs"]}
    assert run.returncode == 1
    assert labs["radix_tree"]["problem"] is None
    assert "holds no folder sampler" in labs["sampler"]["problem"]["problem"]


@pytest.mark.nightly
def test_grading_a_folder_leaves_the_learners_progress_alone(good):
    progress = ROOT / ".yaie/progress.json"
    before = progress.read_bytes() if progress.exists() else None
    grader("grade", "radix_tree", "--task", "3", "--impl", str(good))
    assert (progress.read_bytes() if progress.exists() else None) == before


def test_a_lab_without_tests_says_so(good, tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "SUITES", tmp_path)
    result = grade_lab(find_submission(RADIX_TREE, str(good)))
    assert result.problem is not None
    assert result.problem.problem == "There are no tests for lab radix_tree yet."


def test_a_part_is_found_in_a_folder_of_labs_and_as_the_folder_itself(good, tmp_path):
    assert find_submission(RADIX_TREE, str(good)).folder == good / "radix_tree"
    assert find_submission(RADIX_TREE, str(good / "radix_tree")).folder == good / "radix_tree"
    shutil.copytree(good / "radix_tree", tmp_path / "labs/radix_tree")
    assert find_submission(RADIX_TREE, str(tmp_path)).folder == tmp_path / "labs/radix_tree"
    assert submission_in(good / "radix_tree", RADIX_TREE) is None


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("mine", "{here}/mine"),
        ("solutions", "solutions"),
        ("/else/mine", "/else/mine"),
        ("~/m", "~/m"),
    ],
)
def test_make_passes_a_folder_on_as_seen_from_where_it_was_called(tmp_path, given, meant):
    command = ["make", "-n", "-C", str(ROOT), "grade", "LAB=radix_tree", "TASK=3", f"IMPL={given}"]
    environment = os.environ | {"PWD": str(tmp_path)}
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert f'--impl "{meant.format(here=tmp_path)}"' in run.stdout
    assert "grader grade radix_tree --task 3" in run.stdout


def test_a_misspelled_variable_is_refused_and_any_other_warned_of():
    run = grader("grade", "radix_tree", YAIE_CASHE="/tmp")
    assert (run.returncode, run.stdout) == (2, "")
    assert "YAIE_CASHE, which is no setting; did you mean YAIE_CACHE?" in run.stderr
    run = grader("grade", "no_such_lab", YAIE_GARDEN="1")
    assert "Warning: YAIE_GARDEN is no setting and has no effect" in run.stderr
