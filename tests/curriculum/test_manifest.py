"""The manifest of the labs, and what is refused in one."""

import re
from pathlib import Path

import pytest

from yaie.core.errors import ConfigError
from yaie.curriculum.manifest import FULL_POINTS, MANIFEST, ROOT, load_curriculum

LAB = """
[[lab]]
number = {number}
key = "{key}"
title = "A lab"
part = "A part"
chapter = "A chapter"
minutes = 10
after = {after}
verify = ["cpu"]
plugged_in = "something runs"
tasks = [
    {{ id = "{number}.1", title = "First", points = 40 }},
    {{ id = "{number}.2", title = "Second", points = 60 }},
]
"""
FIRST = LAB.format(number=1, key="first", after="[]")


def load(root: Path, text: str):
    file = root / MANIFEST
    file.parent.mkdir(parents=True)
    file.write_text(text)
    return load_curriculum(root)


def test_every_lab_of_the_repository_has_a_package_and_full_points() -> None:
    curriculum = load_curriculum()
    for lab in curriculum.labs:
        assert (ROOT / "solutions" / lab.key / "__init__.py").is_file()
        assert lab.points == FULL_POINTS


def test_labs_are_found_by_key_and_tasks_by_id_or_number(tmp_path: Path) -> None:
    second = LAB.format(number=2, key="second", after='["first"]')
    curriculum = load(tmp_path, FIRST + second)
    assert curriculum.keys == ("first", "second")
    lab = curriculum["second"]
    assert lab.after == ("first",)
    assert lab.task("2.2") is lab.task("2") is lab.tasks[1]


def test_unknown_lab_and_task_are_refused_with_the_list(tmp_path: Path) -> None:
    curriculum = load(tmp_path, FIRST)
    with pytest.raises(ConfigError, match="choose from first"):
        curriculum["third"]
    with pytest.raises(ConfigError, match=re.escape("it has 1.1, 1.2")):
        curriculum["first"].task("3")


def test_numbers_must_follow_the_path(tmp_path: Path) -> None:
    """With gaps: a lab may come out before one of a lower number."""
    behind = LAB.format(number=1, key="second", after="[]")
    with pytest.raises(ConfigError, match="second is number 1, but stands behind 1"):
        load(tmp_path / "behind", FIRST + behind)
    assert load(tmp_path / "gap", LAB.format(number=2, key="first", after="[]")).keys == ("first",)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("after = []", 'after = ["later"]', "come later"),
        ("minutes = 10\n", "", "lacks minutes"),
        ("minutes = 10", "minutes = 10\nhours = 1", "unknown fields hours"),
        ("points = 60", "points = 61", "has 101 points, not 100"),
        ('id = "1.2"', 'id = "1.3"', "must number its tasks 1.1, 1.2"),
        ('verify = ["cpu"]', 'verify = ["faith"]', "verify"),
        ('verify = ["cpu"]', "verify = []", "verify"),
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused(
    tmp_path: Path, old: str, new: str, complaint: str
) -> None:
    assert old in FIRST
    with pytest.raises(ConfigError, match=re.escape(complaint)):
        load(tmp_path, FIRST.replace(old, new))
