"""What has passed, and that it counts for exactly the source it was graded on."""

import json
import os
from pathlib import Path

import pytest

from yaie.curriculum.manifest import Lab, load_curriculum
from yaie.curriculum.progress import PROGRESS, LabRecord, Progress, part_digest


@pytest.fixture
def lab() -> Lab:
    return load_curriculum()["radix_tree"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A part of two files."""
    folder = tmp_path / "part"
    (folder / "kernels").mkdir(parents=True)
    (folder / "__init__.py").write_text("x = 1\n")
    (folder / "kernels/add.cu").write_text("// add\n")
    return folder


def recorded(root: Path, lab: Lab, folder: Path, passed: tuple[str, ...]) -> Progress:
    progress = Progress.load(root)
    progress.records[lab.key] = LabRecord(part_digest(folder), passed, 0, "2026-01-01T00:00:00")
    return progress


def all_of(lab: Lab) -> tuple[str, ...]:
    return tuple(task.id for task in lab.tasks)


@pytest.mark.parametrize("file", ["__init__.py", "kernels/add.cu"])
def test_a_pass_is_void_once_a_source_file_changes(
    tmp_path: Path, lab: Lab, folder: Path, file: str
) -> None:
    progress = recorded(tmp_path, lab, folder, all_of(lab))
    assert progress.is_complete(lab, folder)
    (folder / file).write_text("changed")
    assert progress.passed_tasks(lab, folder) == ()
    assert not progress.is_complete(lab, folder)


def test_a_new_name_is_another_source_and_a_compiled_file_is_none(folder: Path) -> None:
    digest = part_digest(folder)
    (folder / "__init__.pyc").write_bytes(b"compiled")
    (folder / "notes.md").write_text("notes")
    assert part_digest(folder) == digest
    (folder / "__init__.py").rename(folder / "other.py")
    assert part_digest(folder) != digest


def test_bytes_moved_from_one_file_to_the_next_are_another_source(tmp_path: Path) -> None:
    for name, first, second in (("one", "ab", "c"), ("two", "a", "bc")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.py").write_text(first)
        (tmp_path / name / "b.py").write_text(second)
    assert part_digest(tmp_path / "one") != part_digest(tmp_path / "two")


def test_a_lab_is_complete_when_each_of_its_tasks_passed(
    tmp_path: Path, lab: Lab, folder: Path
) -> None:
    progress = recorded(tmp_path, lab, folder, ("4.3", "4.1", "9.9"))
    assert progress.passed_tasks(lab, folder) == ("4.1", "4.3")
    assert not progress.is_complete(lab, folder)


def test_nothing_has_passed_without_a_record_or_without_a_folder(
    tmp_path: Path, lab: Lab, folder: Path
) -> None:
    assert not Progress.load(tmp_path).is_complete(lab, folder)
    progress = recorded(tmp_path, lab, folder, all_of(lab))
    assert not progress.is_complete(lab, tmp_path / "missing")


def test_what_is_saved_is_loaded(tmp_path: Path, lab: Lab, folder: Path) -> None:
    progress = recorded(tmp_path, lab, folder, all_of(lab))
    progress.hints["4.1"] = 2
    progress.save()
    again = Progress.load(tmp_path)
    assert (again.records, again.hints) == (progress.records, progress.hints)
    assert [path.name for path in (tmp_path / PROGRESS).parent.iterdir()] == [PROGRESS.name]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"labs": {}}', '{"labs": {"sampler": {}}, "hints": {}}']
)
def test_a_garbled_file_counts_as_empty(tmp_path: Path, text: str) -> None:
    file = tmp_path / PROGRESS
    file.parent.mkdir()
    file.write_text(text)
    progress = Progress.load(tmp_path)
    assert (progress.records, progress.hints) == ({}, {})
    progress.save()
    assert json.loads(file.read_text()) == {"labs": {}, "hints": {}}


def test_what_an_editor_keeps_in_a_hidden_folder_is_no_source(tmp_path: Path) -> None:
    (tmp_path / "part.py").write_text("x = 1\n")
    before = part_digest(tmp_path)
    (tmp_path / ".ipynb_checkpoints").mkdir()
    (tmp_path / ".ipynb_checkpoints/part-checkpoint.py").write_text("x = 0\n")
    assert part_digest(tmp_path) == before


def test_a_file_name_that_is_not_utf_8_counts_as_well(folder: Path) -> None:
    before = part_digest(folder)
    try:
        (folder / os.fsdecode(b"caf\xe9.py")).write_text("y = 1\n")
    except OSError:
        pytest.skip("this file system takes names in UTF-8 alone")
    assert part_digest(folder) != before
