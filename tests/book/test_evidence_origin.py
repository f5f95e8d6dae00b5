"""Every file of figures says when, on which commit and on which machine it was measured."""

import json
import re

import pytest

from book.tools.evidence import EVIDENCE
from book.tools.freshness import SOURCES, load_sources
from book.tools.mdbook import ROOT

FILES = sorted(EVIDENCE.glob("*.json"))
DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
COMMIT = re.compile(r"[0-9a-f]{40}")
ASKED = re.compile(r"\{\{#(?:value|spread|pairs) (?P<name>\w+)")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_figures_have_a_day_a_commit_and_a_machine(path):
    """`recorded` is of the commit that brought them, where the program that measured wrote none down."""
    figures = json.loads(path.read_text("utf-8"))
    machine, recorded = figures.get("machine") or {}, figures.get("recorded", {})
    assert DAY.fullmatch(figures.get("date") or recorded.get("date", ""))
    assert COMMIT.fullmatch((machine.get("git") or {}).get("commit") or recorded.get("commit", ""))
    named = machine.get("gpu") or machine.get("cpu") or figures.get("machines")
    assert named, "no machine"


def test_a_figure_in_the_text_comes_from_the_one_file_of_its_name():
    """A run replaces the file of the run before, so no page can show an older one."""
    sources = load_sources()
    assert {path.stem for path in FILES} == set(sources), SOURCES
    runs = [(source.run, source.measures) for source in sources.values() if source.on != "hand"]
    assert len(runs) == len(set(runs)), "two files are written by the same command"
    for chapter in sorted((ROOT / "book/src").glob("*.md")):
        asked = {found["name"] for found in ASKED.finditer(chapter.read_text("utf-8"))}
        assert asked <= set(sources), chapter.name
