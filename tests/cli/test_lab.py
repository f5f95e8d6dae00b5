"""`yaie lab` tells where the learner stands, and hands the grader's commands on."""

import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Yaie
from tests.learner import hand_in, record_pass
from yaie.cli import lab
from yaie.curriculum.manifest import load_curriculum


def row(said: str) -> list[str]:
    return next(line.split() for line in said.splitlines() if "sampler" in line)


def test_every_lab_is_listed_with_what_comes_next(yaie: Yaie, labs: Path) -> None:
    hand_in(labs, "sampler")
    ran = yaie("lab")
    assert ran.code == 0
    for one in load_curriculum().labs:
        assert one.key in ran.out
        assert one.chapter in ran.out
    assert row(ran.out)[:6] == ["1", "sampler", "0/100", "not", "graded", "yet"]
    assert "Next: yaie lab grade sampler" in ran.out
    assert "Its tasks, one by one: book/src/labs/sampler.md" in ran.out


def test_points_hold_on_the_source_that_was_graded(yaie: Yaie, labs: Path) -> None:
    folder = hand_in(labs, "sampler")
    record_pass(labs, "sampler", tasks=1)
    assert row(yaie("lab").out)[2:7] == ["15/100", "1", "of", "7", "tasks"]
    record_pass(labs, "sampler")
    assert row(yaie("lab").out)[2:5] == ["100/100", "all", "tasks"]
    assert "Next: yaie lab grade transformer_ops" in yaie("lab").out
    (folder / "sampler.py").write_text("x = 2\n")
    assert row(yaie("lab").out)[2:4] == ["0/100", "changed"]


def test_the_grader_is_run_with_the_same_words_and_its_exit_status(
    yaie: Yaie, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    def run(command: list[str]) -> int:
        commands.append(command)
        return 7

    monkeypatch.setattr(lab, "_run", run)
    assert yaie("lab", "grade", "sampler", "--task", "1.2", "--help").code == 7
    assert yaie("lab", "break", "sampler", "--round", "2").code == 7
    assert commands == [
        [sys.executable, "-m", "grader", "grade", "sampler", "--task", "1.2", "--help"],
        [sys.executable, "-m", "grader", "break", "sampler", "--round", "2"],
    ]


def test_without_the_grader_it_says_so(yaie: Yaie, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab, "find_spec", lambda name: None)
    ran = yaie("lab", "grade", "sampler")
    assert ran.code == 2
    assert "clone of the repository" in ran.err
