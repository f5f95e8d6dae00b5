"""The switch between a learner's parts and the reference."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from yaie.core.errors import ConfigError, PartError
from yaie.parts import LABS, load_parts

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def labs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty package `labs` that is found before the repository's own."""

    def forget() -> None:
        for name in [name for name in sys.modules if name.split(".")[0] == "labs"]:
            monkeypatch.delitem(sys.modules, name)

    package = tmp_path / "labs"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    forget()
    yield package
    for name in [name for name in sys.modules if name.split(".")[0] == "labs"]:
        del sys.modules[name]


@pytest.mark.parametrize("mine", ["auto", "none"])
def test_without_a_forced_part_the_reference_runs(mine: str) -> None:
    table = load_parts(mine).table()
    assert [part.lab for part in table] == list(LABS)
    assert {part.owner for part in table} == {"reference"}
    assert all(part.module == f"solutions.{part.lab}" for part in table)


@pytest.mark.parametrize("lab", LABS)
def test_a_forced_stub_names_lab_task_and_chapter(lab: str) -> None:
    with pytest.raises(PartError, match=rf"{lab} task \d+\.\d+: not implemented yet; see chapter"):
        load_parts(lab)


def test_all_demands_every_part() -> None:
    with pytest.raises(PartError, match="unfinished"):
        load_parts("all")


@pytest.mark.parametrize("mine", ["samplr", "sampler,", "", "sampler,all"])
def test_a_lab_that_does_not_exist_is_refused_with_the_list(mine: str) -> None:
    with pytest.raises(ConfigError, match="radix_tree") as error:
        load_parts(mine)
    assert error.value.param == "mine"


def test_a_finished_part_runs_as_yours_beside_the_reference(labs: Path) -> None:
    shutil.copytree(ROOT / "solutions/sampler", labs / "sampler")
    parts = load_parts("sampler")
    owners = {part.lab: part.owner for part in parts.table()}
    assert owners == {lab: "yours" if lab == "sampler" else "reference" for lab in LABS}
    assert parts["sampler"].__name__ == "labs.sampler"


def test_a_part_that_cannot_be_imported_names_file_and_line(labs: Path) -> None:
    (labs / "sampler").mkdir()
    (labs / "sampler/__init__.py").write_text("x = 1\nraise ValueError('mine')\n")
    with pytest.raises(PartError, match=r"sampler.*ValueError: mine.*__init__\.py, line 2"):
        load_parts("sampler")


def test_a_part_that_is_missing_says_how_to_get_it(labs: Path) -> None:
    with pytest.raises(PartError, match="make stubs"):
        load_parts("sampler")


def test_labs_that_were_never_generated_say_how_to_get_them(
    labs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "labs", None)
    with pytest.raises(PartError, match="make stubs"):
        load_parts("sampler")
