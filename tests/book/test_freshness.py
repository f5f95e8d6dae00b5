"""Recorded figures know which code they measured, and are told from older ones."""

import json
import re
from datetime import date, timedelta
from pathlib import Path

import pytest
import typer

from book.tools import freshness, remeasure
from book.tools.evidence import EVIDENCE, EvidenceError
from book.tools.freshness import Source, load_sources, stale, stamp
from book.tools.mdbook import ROOT

MOST_DAYS = 30
"""After which figures are measured again, if their code is another one by then."""

CODE = '''"""A part."""


def double(x: int) -> int:
    """Twice as much."""
    # By the book.
    return 2 * x
'''


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A root with some code."""
    (tmp_path / "part").mkdir()
    (tmp_path / "part/ours.py").write_text(CODE, "utf-8")
    (tmp_path / "part/kernel.cu").write_text("int twice;\n", "utf-8")
    (tmp_path / "part/gpu.py").write_text("GRAPHS = 35\n", "utf-8")
    return tmp_path


def source(*measures: str) -> Source:
    return Source("run", "python -m yaie.bench.evidence.run", "cpu", measures)


@pytest.mark.parametrize(
    ("old", "new", "is_other"),
    [
        ("    # By the book.\n", "", False),
        ("Twice as much.", "Two of it.", False),
        ('"""A part."""', '"""Another."""', False),
        ("2 * x", "x * 2", True),
        ("double", "twice", True),
    ],
)
def test_words_about_code_are_not_code(tree: Path, old: str, new: str, is_other: bool) -> None:
    before = source("part").digest(tree)
    (tree / "part/ours.py").write_text(CODE.replace(old, new), "utf-8")
    assert (source("part").digest(tree) != before) is is_other


def test_cuda_counts_and_what_is_left_out_does_not(tree: Path) -> None:
    measured = source("part", "!part/gpu.py")
    before = measured.digest(tree)
    (tree / "part/gpu.py").write_text("GRAPHS = 95\n", "utf-8")
    assert measured.digest(tree) == before
    (tree / "part/kernel.cu").write_text("int thrice;\n", "utf-8")
    assert measured.digest(tree) != before


def test_a_path_that_is_gone_is_named(tree: Path) -> None:
    with pytest.raises(EvidenceError, match=r"run measures .*part/old\.py, which is not there"):
        source("part/old.py").digest(tree)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of evidence with one file, of code below another root."""
    evidence = tmp_path / "evidence"
    evidence.mkdir()
    (evidence / "sources.toml").write_text(
        '[groups]\nall = ["part"]\n[run]\nrun = "yaie bench memory"\non = "cpu"\nmeasures = ["@all"]\n',
        "utf-8",
    )
    figures = {"machine": {"threads": 2}, "rates": [1.5, 2.5], "share": 0.99}
    (evidence / "run.json").write_text(json.dumps(figures), "utf-8")
    return evidence


def test_a_file_and_its_source_need_each_other(folder: Path) -> None:
    (folder / "more.json").write_text("{}", "utf-8")
    with pytest.raises(EvidenceError, match=r"more is missing in sources\.toml"):
        load_sources(folder)
    (folder / "more.json").unlink()
    (folder / "run.json").unlink()
    with pytest.raises(EvidenceError, match="run is missing in the folder"):
        load_sources(folder)


def test_figures_are_stale_until_they_are_measured_on_the_code_of_today(
    folder: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = Source.digest
    monkeypatch.setattr(Source, "digest", lambda self, root=tree: digest(self, root))
    assert stale(folder) == {"run": "does not say which code it measured"}
    stamp(load_sources(folder)["run"], folder / "run.json", tree)
    assert stale(folder) == {}
    figures = json.loads((folder / "run.json").read_text("utf-8"))
    assert figures["rates"] == [1.5, 2.5]
    assert figures["command"] == load_sources(folder)["run"].run
    (tree / "part/gpu.py").write_text("GRAPHS = 95\n", "utf-8")
    monkeypatch.setattr(freshness, "ROOT", tree)
    assert stale(folder) == {"run": "its code has changed"}


def test_figures_name_no_place_of_the_machine_that_measured_them() -> None:
    for file in EVIDENCE.glob("*.json"):
        assert not re.search(r"/(tmp|home|root|Users)/", file.read_text("utf-8")), file.name


@pytest.mark.nightly
def test_every_command_of_the_evidence_can_be_run() -> None:
    """`yaie bench` knows its flags; a module that is named is there."""
    from typer.testing import CliRunner

    from yaie.cli.main import app

    for one in load_sources().values():
        if one.on == "hand":
            continue
        words = one.run.split()
        if words[0] == "yaie":
            shown = CliRunner().invoke(app, [*words[1:], "--json", "x", "--help"])
            assert shown.exit_code == 0, one.name
            continue
        assert words[:2] == ["python", "-m"], one.name
        assert (ROOT / words[2].replace(".", "/")).with_suffix(".py").is_file(), one.name


def test_a_command_that_fails_leaves_the_figures_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remeasure, "EVIDENCE", folder)
    before = (folder / "run.json").read_text("utf-8")
    failing = Source("run", "yaie bench memory --requests 0", "cpu", ())
    assert "requests" in remeasure.measure(failing)
    assert (folder / "run.json").read_text("utf-8") == before
    assert sorted(path.name for path in folder.iterdir()) == ["run.json", "sources.toml"]


def test_names_that_nobody_can_measure_are_refused() -> None:
    with pytest.raises(typer.BadParameter, match=r"no book/evidence/throughputs\.json"):
        remeasure.remeasure(["throughputs"])
    with pytest.raises(typer.BadParameter, match="ceilings is no command's"):
        remeasure.remeasure(["ceilings"])


@pytest.mark.nightly
def test_a_cpus_figures_of_code_that_has_changed_since_are_not_old() -> None:
    """`make evidence ARGS=--stale` measures them again, which takes hours of an idle machine."""
    sources = load_sources()
    names = [name for name in stale(EVIDENCE) if sources[name].on == "cpu"]
    figures = {name: json.loads((EVIDENCE / f"{name}.json").read_text("utf-8")) for name in names}
    oldest = date.today() - timedelta(days=MOST_DAYS)
    dates = {name: date.fromisoformat(figures[name]["date"]) for name in names}
    assert [name for name in names if dates[name] < oldest] == []
