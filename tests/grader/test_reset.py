"""`make reset`: stubs again, and nothing of the learner's is lost."""

import os
import shutil
from pathlib import Path

import pytest

from grader.reset import reset_lab
from tests.grader.results import RADIX_TREE
from yaie.curriculum.manifest import ROOT


@pytest.fixture
def root(tmp_path):
    """A checkout whose radix tree a learner has worked on."""
    for folder in ("solutions", "labs"):
        shutil.copytree(
            ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__")
        )
    reset_lab(RADIX_TREE, tmp_path)
    shutil.rmtree(tmp_path / ".yaie", ignore_errors=True)
    (tmp_path / "labs/radix_tree/radix_tree.py").write_text("mine = 1\n")
    (tmp_path / "labs/radix_tree/notes.md").write_text("notes")
    return tmp_path


def test_stubs_are_restored_and_the_learners_files_kept(root):
    done = reset_lab(RADIX_TREE, root)
    assert [path.name for path in done.restored] == ["radix_tree.py"]
    assert "not implemented yet" in (root / "labs/radix_tree/radix_tree.py").read_text()
    assert (root / done.backup / "radix_tree.py").read_text() == "mine = 1\n"
    assert done.backup.as_posix().startswith(".yaie/backups/radix_tree-20")
    assert done.describe(RADIX_TREE) == f"1 file is a stub again. Your files are in {done.backup}."


def test_a_file_that_was_never_generated_stays_and_is_in_the_backup(root):
    done = reset_lab(RADIX_TREE, root)
    assert (root / "labs/radix_tree/notes.md").read_text() == "notes"
    assert (root / done.backup / "notes.md").read_text() == "notes"


def test_a_second_reset_has_nothing_to_do(root):
    reset_lab(RADIX_TREE, root)
    done = reset_lab(RADIX_TREE, root)
    assert (done.restored, done.backup) == ((), None)
    assert "nothing to do" in done.describe(RADIX_TREE)


def test_two_resets_in_one_second_have_two_backups(root):
    first = reset_lab(RADIX_TREE, root)
    (root / "labs/radix_tree/radix_tree.py").write_text("mine = 2\n")
    second = reset_lab(RADIX_TREE, root)
    assert first.backup != second.backup
    assert (root / second.backup / "radix_tree.py").read_text() == "mine = 2\n"


def test_a_backup_that_another_reset_makes_at_the_same_moment_is_not_touched(root, monkeypatch):
    """Between the look for a free name and the copy, another process may have taken the name."""
    make, taken = Path.mkdir, []

    def meanwhile(path, *given, **more):
        if path.parent.name == "backups" and not taken:
            taken.append(path)
            make(path)
            (path / "theirs.py").write_text("theirs = 1\n")
        return make(path, *given, **more)

    monkeypatch.setattr(Path, "mkdir", meanwhile)
    monkeypatch.setattr(os, "makedirs", lambda path, **more: meanwhile(Path(path), **more))
    done = reset_lab(RADIX_TREE, root)
    assert (taken[0] / "theirs.py").read_text() == "theirs = 1\n"
    assert root / done.backup != taken[0]
    assert (root / done.backup / "radix_tree.py").read_text() == "mine = 1\n"


def test_a_lab_that_was_deleted_comes_back_without_a_backup(root):
    shutil.rmtree(root / "labs/radix_tree")
    done = reset_lab(RADIX_TREE, root)
    assert done.backup is None
    assert (root / "labs/radix_tree/__init__.py").is_file()


def test_other_labs_are_left_alone(root):
    other = root / "labs/sampler/__init__.py"
    other.write_text("mine = 1\n")
    reset_lab(RADIX_TREE, root)
    assert other.read_text() == "mine = 1\n"
