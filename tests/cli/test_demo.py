"""`yaie lab demo`: whose part is shown, what is printed, and what a part that fails looks like."""

from pathlib import Path

import pytest

from tests.cli.conftest import Yaie
from tests.learner import hand_in, record_pass
from yaie.cli import demo
from yaie.cli.demo import headline, print_shown
from yaie.curriculum.manifest import load_curriculum
from yaie.demos.shown import Shown, bar, counted, row
from yaie.parts import load_part


def test_an_unknown_lab_is_named(yaie: Yaie) -> None:
    ran = yaie("lab", "demo", "radix_three")
    assert ran.code == 2
    assert "there is no lab 'radix_three'" in ran.err


def test_a_passed_part_is_yours(yaie: Yaie, labs: Path) -> None:
    hand_in(labs, "speculative")
    record_pass(labs, "speculative")
    ran = yaie("lab", "demo", "speculative")
    assert ran.code == 0, ran.err
    first, *_, last = ran.out.splitlines()
    assert first == "Lab 18, Speculative decoding: your speculative."
    assert last.startswith("Drafts ")
    assert "\x1b" not in ran.out


def test_an_unfinished_part_is_told_and_the_reference_is_shown(labs: Path) -> None:
    hand_in(labs, "speculative")
    record_pass(labs, "speculative", tasks=2)
    lab = load_curriculum()["speculative"]
    assert headline(lab, load_part("speculative", "auto")) == (
        "Lab 18, Speculative decoding: the reference's speculative. Yours is not finished yet (2 of 7 "
        "tasks passed): make grade LAB=speculative"
    )
    assert headline(lab, load_part("speculative", "none")).endswith("the reference's speculative.")


def test_a_part_that_fails_is_one_sentence_with_its_line(yaie: Yaie, labs: Path) -> None:
    hand_in(labs, "speculative", "\n\ndef _read(self, text, most):\n    return text[10**6]\n\n\n"
            "NgramIndex.read = _read\n")  # fmt: skip
    ran = yaie("lab", "demo", "speculative", "--mine", "speculative")
    assert ran.code == 1
    said = " ".join(ran.out.splitlines()[1:])
    assert "part speculative failed: IndexError: list index out of range" in said.lower().replace(
        "indexerror", "IndexError"
    )
    assert "labs/speculative/__init__.py, line " in said
    assert said.endswith("To see why: make grade LAB=speculative")
    assert "Traceback" not in ran.out + ran.err


def test_a_stub_that_is_forced_says_which_task(yaie: Yaie, labs: Path) -> None:
    folder = hand_in(labs, "speculative")
    (folder / "ngrams.py").write_text('raise NotImplementedError("task 18.1: an index")\n')
    ran = yaie("lab", "demo", "speculative", "--mine", "speculative")
    assert ran.code == 2
    assert "unfinished: task 18.1" in ran.err


def test_numbers_stand_side_by_side_in_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo.out, "_width", 120)
    rows = (row("steps", 31, 14), row("share", 0.5, ""), row("bytes", 12_345, "none"))
    print_shown(Shown("Long words " * 20, ("without", "with"), rows, "so", ("picture",)))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    cells = [line.split() for line in lines]
    for wanted in ("without with", "steps 31 14", "share 0.5", "bytes 12,345 none"):
        assert wanted.split() in cells
    assert cells.index(["picture"]) < cells.index(["so"])


def test_words_of_a_demo() -> None:
    assert [counted(1, "step"), counted(1200, "step")] == ["1 step", "1,200 steps"]
    assert [bar(0.5, 8), bar(-1, 8), bar(2, 8)] == ["####", "", "########"]
