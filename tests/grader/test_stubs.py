"""`make stubs`: it writes what differs, reports exactly that, and leaves a learner's work alone."""

from pathlib import Path

import pytest

from grader.stubs import digest, main
from yaie.curriculum.manifest import load_curriculum

CURRICULUM = """
[[lab]]
number = 1
key = "sampler"
title = "Sampler"
part = "One token at a time"
chapter = "Choosing the next token"
minutes = 90
after = []
verify = ["cpu"]
plugged_in = "your sampler draws every token"
tasks = [{ id = "1.1", title = "Draw", points = 100 }]
"""

DRAW = '''"""Draw."""


def draw(logits):
    # BEGIN SOLUTION 1.1
    return logits.argmax()
    # END SOLUTION
'''


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with one lab, its stub generated."""
    (tmp_path / "labs").mkdir()
    (tmp_path / "labs/curriculum.toml").write_text(CURRICULUM)
    (tmp_path / "solutions/sampler/__pycache__").mkdir(parents=True)
    (tmp_path / "solutions/sampler/__pycache__/draw.cpython-311.pyc").write_bytes(b"\xff")
    (tmp_path / "solutions/sampler/__init__.py").write_text("")
    (tmp_path / "solutions/sampler/draw.py").write_text(DRAW)
    assert main([], tmp_path) == 0
    return tmp_path


def test_every_source_file_gets_its_stub(root):
    assert sorted(path.name for path in (root / "labs/sampler").iterdir()) == [
        "__init__.py",
        "draw.py",
    ]
    assert "NotImplementedError" in (root / "labs/sampler/draw.py").read_text()


def test_a_second_run_changes_nothing(root):
    before = {path: path.read_bytes() for path in (root / "labs").rglob("*.*")}
    assert main([], root) == 0
    assert {path: path.read_bytes() for path in (root / "labs").rglob("*.*")} == before


def test_check_passes_when_in_step(root, capsys):
    assert main(["--check"], root) == 0
    assert "in step" in capsys.readouterr().out


def test_check_shows_the_line_that_differs_and_writes_nothing(root, capsys):
    before = (root / "labs/sampler/draw.py").read_text()
    (root / "solutions/sampler/draw.py").write_text(DRAW.replace("logits", "scores"))
    assert main(["--check"], root) == 1
    out = capsys.readouterr().out
    assert "labs/sampler/draw.py: older than its source in solutions/" in out
    assert "    -def draw(logits):\n    +def draw(scores):" in out
    assert (root / "labs/sampler/draw.py").read_text() == before


def test_a_changed_source_is_written(root):
    (root / "solutions/sampler/draw.py").write_text(DRAW.replace("logits", "scores"))
    assert main([], root) == 0
    assert "def draw(scores)" in (root / "labs/sampler/draw.py").read_text()


def test_a_learners_edit_is_not_overwritten(root, capsys):
    mine = root / "labs/sampler/draw.py"
    mine.write_text("# my work\n")
    (root / "solutions/sampler/__init__.py").write_text('"""Changed."""\n')
    assert main([], root) == 1
    assert "labs/sampler/draw.py" in capsys.readouterr().err
    assert mine.read_text() == "# my work\n"
    assert (root / "labs/sampler/__init__.py").read_text() == ""


def test_force_overwrites_an_edit(root):
    mine = root / "labs/sampler/draw.py"
    mine.write_text("# my work\n")
    assert main(["--force"], root) == 0
    assert "NotImplementedError" in mine.read_text()


def test_check_lets_a_learners_work_pass_and_names_it(root, capsys):
    (root / "labs/sampler/draw.py").write_text("# my work\n")
    assert main(["--check"], root) == 0
    out = capsys.readouterr().out
    assert "labs/sampler/draw.py: yours, edited" in out
    assert "2 files, 1 of them yours" in out


def test_a_strict_check_says_that_an_edit_was_made_by_hand(root, capsys):
    (root / "labs/sampler/draw.py").write_text("# my work\n")
    assert main(["--check", "--strict"], root) == 1
    assert "labs/sampler/draw.py: edited by hand" in capsys.readouterr().out


def test_a_strict_check_passes_on_untouched_stubs(root):
    assert main(["--check", "--strict"], root) == 0


def test_a_learners_work_does_not_hide_a_stale_stub_beside_it(root, capsys):
    (root / "labs/sampler/draw.py").write_text("# my work\n")
    (root / "solutions/sampler/__init__.py").write_text('"""Changed."""\n')
    assert main(["--check"], root) == 1
    assert "labs/sampler/__init__.py: older than its source" in capsys.readouterr().out


def test_an_edit_of_a_stub_whose_source_has_changed_since_fails(root, capsys):
    (root / "labs/sampler/draw.py").write_text("# my work\n")
    (root / "solutions/sampler/draw.py").write_text(DRAW.replace("logits", "scores"))
    assert main(["--check"], root) == 1
    assert "labs/sampler/draw.py" in capsys.readouterr().out


def test_a_record_that_was_changed_to_fit_an_edit_fails(root):
    mine = root / "labs/sampler/draw.py"
    mine.write_text("# my work\n")
    record = root / "labs/stubs.sha256"
    lines = [line for line in record.read_text().splitlines() if "draw.py" not in line]
    record.write_text("\n".join([*lines, f"{digest(mine.read_text())}  labs/sampler/draw.py"]))
    assert main(["--check"], root) == 1


def test_a_manifest_that_makes_no_sense_stops_everything(root, capsys):
    (root / "labs/curriculum.toml").write_text(CURRICULUM.replace("points = 100", "points = 90"))
    load_curriculum.cache_clear()
    assert main(["--check"], root) == 2
    assert "lab sampler has 90 points, not 100" in capsys.readouterr().err


def test_a_stub_without_a_source_is_removed(root):
    (root / "solutions/sampler/draw.py").unlink()
    assert main(["--check"], root) == 1
    assert main([], root) == 0
    assert not (root / "labs/sampler/draw.py").exists()
    assert main(["--check"], root) == 0


def test_a_file_that_was_never_generated_is_left_alone(root):
    notes = root / "labs/sampler/notes.md"
    notes.write_text("mine")
    assert main(["--force"], root) == 0
    assert notes.read_text() == "mine"
    assert main(["--check"], root) == 0


def test_a_missing_stub_is_reported_and_made_again(root, capsys):
    (root / "labs/sampler/draw.py").unlink()
    assert main(["--check"], root) == 1
    assert "labs/sampler/draw.py: missing" in capsys.readouterr().out
    assert main([], root) == 0
    assert main(["--check"], root) == 0


def test_the_record_is_part_of_being_in_step(root, capsys):
    (root / "labs/stubs.sha256").write_text("")
    assert main(["--check"], root) == 1
    assert "labs/stubs.sha256" in capsys.readouterr().out


def test_a_package_that_the_curriculum_does_not_list_is_an_error(root, capsys):
    (root / "solutions/helpers").mkdir()
    assert main([], root) == 2
    assert "solutions/helpers is not in labs/curriculum.toml" in capsys.readouterr().err


def test_a_wrong_marker_stops_everything_with_its_place(root, capsys):
    (root / "solutions/sampler/draw.py").write_text("# BEGIN SOLUTION 1.1\nx = 1\n")
    assert main([], root) == 2
    assert "solutions/sampler/draw.py:1:" in capsys.readouterr().err


def test_an_oracle_has_no_stub_and_its_old_copy_is_removed(root, capsys):
    oracle = root / "solutions/sampler/naive.py"
    oracle.write_text("def best(row):\n    return max(row)\n")
    assert main([], root) == 0
    assert (root / "labs/sampler/naive.py").exists()
    oracle.write_text("# ORACLE\n" + oracle.read_text())
    assert main(["--check"], root) == 1
    assert main([], root) == 0
    assert "removed labs/sampler/naive.py" in capsys.readouterr().out
    assert not (root / "labs/sampler/naive.py").exists()
    assert main(["--check", "--strict"], root) == 0


def test_an_oracle_that_holds_a_task_is_refused(root, capsys):
    (root / "solutions/sampler/draw.py").write_text("# ORACLE\n" + DRAW)
    assert main([], root) == 2
    assert "solutions/sampler/draw.py:1: an oracle has no stub" in capsys.readouterr().err
