"""`yaie lab upgrade` on a checkout whose radix tree has got a second edition."""

import io
import json
import shutil

import pytest
from rich.console import Console

from grader.record import record
from grader.runner import Limits, grade_labs
from grader.stubs import generate
from grader.submission import find_submission
from grader.upgrade.keep import keep
from grader.upgrade.lab import upgrade_lab
from grader.upgrade.run import run, tell
from yaie.core.errors import ConfigError
from yaie.curriculum.editions import edition_of, how_to_upgrade, is_older
from yaie.curriculum.manifest import ROOT, load_curriculum
from yaie.curriculum.progress import PROGRESS, part_digest
from yaie.parts import by_progress

LAB = load_curriculum()["radix_tree"]
TASKS = [task.id for task in LAB.tasks]
CHANGES = """
[[change]]
lab = "radix_tree"
edition = 2
names = { match_prefix = "longest_prefix" }

[[change.note]]
task = "4.1"
place = "radix_tree.py:RadixTree.longest_prefix"
text = "it is called longest_prefix now"
"""


@pytest.fixture
def root(tmp_path, monkeypatch):
    """The learner has finished edition 1; what is checked out has edition 2."""
    ignored = shutil.ignore_patterns("__pycache__")
    for folder in ("solutions", "labs"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignored)
    keep(LAB, tmp_path)
    for path, text in generate(tmp_path, TASKS).items():
        if path.parts[1] == LAB.key:
            (tmp_path / path).write_text(text)
    table = (tmp_path / "labs/curriculum.toml").read_text()
    table = table.replace('key = "radix_tree"', 'key = "radix_tree"\nedition = 2')
    (tmp_path / "labs/curriculum.toml").write_text(table)
    for file in (tmp_path / "solutions/radix_tree").glob("*.py"):
        file.write_text(file.read_text().replace("match_prefix", "longest_prefix"))
    (tmp_path / "grader/upgrade/changes.toml").write_text(CHANGES)
    load_curriculum.cache_clear()  # it was read before the manifest changed
    return tmp_path


@pytest.fixture
def lab(root):
    return load_curriculum(root)["radix_tree"]


def had_passed(root, tasks):
    folder = root / "labs/radix_tree"
    record = {"digest": part_digest(folder), "passed": tasks, "points": 1, "graded_at": ""}
    (root / PROGRESS).parent.mkdir(exist_ok=True)
    (root / PROGRESS).write_text(json.dumps({"labs": {"radix_tree": record}, "hints": {}}))


def test_a_finished_package_is_finished_under_the_new_names(root, lab):
    before = (root / "labs/radix_tree/radix_tree.py").read_text()
    done = upgrade_lab(lab, root)
    after = (root / "labs/radix_tree/radix_tree.py").read_text()
    assert (done.edition, done.open, done.left_out) == (1, (), ())
    assert "def longest_prefix" in after
    assert "not implemented yet" not in after
    assert after.startswith("# Lab 4, your part (edition 2): tasks ")
    assert (root / done.backup / "radix_tree.py").read_text() == before
    assert edition_of(root / "labs/radix_tree") == 2


def test_a_second_upgrade_has_nothing_to_do(root, lab):
    upgrade_lab(lab, root)
    assert upgrade_lab(lab, root) is None
    console = Console(file=io.StringIO())
    assert run("radix_tree", console, root) == 0
    assert "nothing to do" in console.file.getvalue()


def test_what_had_passed_is_graded_again_and_its_pass_kept(root, lab):
    had_passed(root, ["4.1", "4.2"])
    done = upgrade_lab(lab, root)
    assert done.had == ("4.1", "4.2")
    lines = list(tell(done, root, lambda lab, root: ("4.1", "4.2")))
    assert ("Passes again: 4.1, 4.2.", True) in lines
    assert all(is_done for _, is_done in lines)


def test_what_passes_no_more_is_told_with_file_line_and_what_changed(root, lab):
    had_passed(root, ["4.1", "4.2"])
    done = upgrade_lab(lab, root)
    lines = list(tell(done, root, lambda lab, root: ("4.2",)))
    text = (root / "labs/radix_tree/radix_tree.py").read_text().splitlines()
    line = next(n for n, line in enumerate(text, 1) if "def longest_prefix" in line)
    place = (
        f"labs/radix_tree/radix_tree.py, line {line}: task 4.1: it is called longest_prefix now."
    )
    assert ("Does not pass any more: 4.1.", False) in lines
    assert (place, False) in lines


def test_the_grader_and_the_engine_name_the_command_for_an_old_package(root, lab, monkeypatch):
    sentence = how_to_upgrade(lab, 1)
    assert "`yaie lab upgrade radix_tree` carries your work over" in sentence
    (result,) = grade_labs([find_submission(lab, root=root)], limits=Limits(seconds=20))
    assert result.problem.problem == f"{sentence}."
    assert not result.passed
    monkeypatch.setattr("yaie.parts.find_mine", lambda key: root / "labs" / key)
    assert by_progress(lab) == ("reference", "of an older edition: yaie lab upgrade radix_tree")


def test_a_grading_before_the_upgrade_takes_no_pass_away(root, lab):
    had_passed(root, ["4.1", "4.2"])
    (result,) = grade_labs([find_submission(lab, root=root)], limits=Limits(seconds=20))
    assert record(result, root) == ()
    assert upgrade_lab(lab, root).had == ("4.1", "4.2")


def test_a_package_that_does_not_say_its_edition_is_todays(root, lab):
    folder = root / "labs/radix_tree"
    for file in folder.glob("*.py"):
        file.write_text("\n".join(file.read_text().splitlines()[1:]))
    assert not is_older(lab, edition_of(folder))
    assert upgrade_lab(lab, root) is None


def test_without_the_stubs_that_it_was_begun_on_nothing_is_changed(root, lab):
    before = part_digest(root / "labs/radix_tree")
    for archive in (root / "grader/upgrade/stubs").glob("*.zip"):
        archive.unlink()
    with pytest.raises(ConfigError, match=r"radix_tree-1\.zip.*fresh clone"):
        upgrade_lab(lab, root)
    assert part_digest(root / "labs/radix_tree") == before


def test_an_edition_whose_changes_are_not_written_down_is_refused(root, lab):
    (root / "grader/upgrade/changes.toml").write_text("")
    with pytest.raises(ConfigError, match="does not say what edition 2 of radix_tree changed"):
        upgrade_lab(lab, root)


def test_the_stubs_of_an_edition_are_kept_once(root):
    with pytest.raises(ConfigError, match="that edition is history"):
        keep(LAB, root)
