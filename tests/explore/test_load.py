"""Whose part a notebook draws from, and what it says when there is none."""

import pytest

from tests.learner import hand_in
from yaie.curriculum.manifest import ROOT
from yaie.explore import NothingToDraw, load

STUB = """
def gumbel_noise():
    raise NotImplementedError(
        "sampler task 1.6: not implemented yet; see chapter Sampling"
    )
"""


def test_by_default_the_learners_part_is_drawn(labs, monkeypatch, capsys):
    monkeypatch.delenv("YAIE_MINE", raising=False)
    hand_in(labs, "sampler")
    assert load("sampler")["sampler"].__name__ == "labs.sampler"
    assert "your sampler" in capsys.readouterr().out


def test_the_environment_may_say_otherwise(labs, monkeypatch, capsys):
    monkeypatch.setenv("YAIE_MINE", "none")
    assert load("sampler")["sampler"].__name__ == "solutions.sampler"
    assert "the reference's sampler" in capsys.readouterr().out


def test_several_of_yours_are_named(labs, monkeypatch, capsys):
    monkeypatch.setenv("YAIE_MINE", "sampler,radix_tree")
    hand_in(labs, "sampler")
    hand_in(labs, "radix_tree")
    load("sampler")
    assert "your sampler, on your radix_tree" in capsys.readouterr().out


def test_open_tasks_are_listed_with_their_titles(labs, monkeypatch):
    monkeypatch.delenv("YAIE_MINE", raising=False)
    folder = hand_in(labs, "sampler")
    (folder / "noise.py").write_text(STUB)
    with pytest.raises(NothingToDraw) as caught:
        load("sampler")
    assert "1.6  Gumbel noise from a seed" in caught.value.message
    assert "1.1" not in caught.value.message
    assert caught.value._render_traceback_() == [caught.value.message]


def test_a_part_that_cannot_be_imported_is_told_by_its_line_and_read_again(labs, monkeypatch):
    monkeypatch.delenv("YAIE_MINE", raising=False)
    folder = hand_in(labs, "sampler")
    (folder / "noise.py").write_text("this is not Python\n")
    with pytest.raises(NothingToDraw, match=r"noise\.py"):
        load("sampler")
    text = (ROOT / "solutions/sampler/noise.py").read_text("utf-8")
    (folder / "noise.py").write_text(text)
    assert load("sampler")["sampler"].Sampler
