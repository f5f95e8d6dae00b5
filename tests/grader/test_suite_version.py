"""Versions of suites: a pass by an older one still counts, and is to be graded again."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from grader.record import record
from grader.suite_version import JUDGED, main, suite_digest, unjudged
from grader.verdict import Verdict
from tests.grader.results import RADIX_TREE, complete, graded, result_of
from yaie.curriculum.manifest import MANIFEST, ROOT, load_curriculum
from yaie.curriculum.progress import PROGRESS, Progress
from yaie.parts import by_progress


def test_every_suite_was_judged_as_it_is() -> None:
    assert unjudged() == [], "python -m grader.suite_version LAB --stricter, or --same"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The manifest, and two suites of one file each."""
    for name in (MANIFEST, JUDGED):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for lab in load_curriculum().keys:
        folder = tmp_path / "grader" / "suites" / lab
        folder.mkdir(parents=True)
        (folder / "test_it.py").write_text(f"# {lab}\n", "utf-8")
        assert main([lab, "--same"], tmp_path) == 0
    return tmp_path


def test_a_suite_that_changes_must_be_judged(checkout: Path, capsys: pytest.CaptureFixture) -> None:
    assert main([], checkout) == 0
    before = suite_digest("radix_tree", checkout)
    (checkout / "grader/suites/radix_tree/test_more.py").write_text("", "utf-8")
    assert suite_digest("radix_tree", checkout) != before
    assert main([], checkout) == 1
    assert capsys.readouterr().out.endswith(
        "radix_tree: its suite has changed; say --stricter or --same\n"
    )
    manifest = (checkout / MANIFEST).read_text("utf-8")
    assert main(["radix_tree", "--same"], checkout) == 0
    assert (checkout / MANIFEST).read_text("utf-8") == manifest
    assert main([], checkout) == 0


def test_a_stricter_one_has_the_next_version(checkout: Path) -> None:
    version = load_curriculum(checkout)["radix_tree"].suite
    line = f"suite = {version + 2}\ntasks"
    others = (checkout / MANIFEST).read_text("utf-8").count(line)
    for more in (1, 2):
        assert main(["radix_tree", "--stricter"], checkout) == 0
        load_curriculum.cache_clear()
        labs = load_curriculum(checkout)
        assert labs["radix_tree"].suite == version + more
        assert {lab.key for lab in labs.labs if lab != load_curriculum()[lab.key]} == {"radix_tree"}
    text = (checkout / MANIFEST).read_text("utf-8")
    assert text.count(line) == others + 1


@pytest.mark.parametrize("words", [["nothing", "--same"], ["radix_tree"]])
def test_what_makes_no_sense_is_refused(checkout: Path, words: list[str]) -> None:
    assert main(words, checkout) == 2


# --- passes ---

STRICTER = replace(RADIX_TREE, suite=RADIX_TREE.suite + 1)


def suite_of_record(root: Path) -> int:
    return Progress.load(root).records["radix_tree"].suite


def test_a_pass_keeps_the_version_that_gave_it(tmp_path: Path) -> None:
    record(complete(), tmp_path)
    assert suite_of_record(tmp_path) == RADIX_TREE.suite
    assert not Progress.load(tmp_path).is_outdated(RADIX_TREE)
    assert Progress.load(tmp_path).is_outdated(STRICTER)
    first, *_ = RADIX_TREE.tasks
    some = result_of(graded(first.id, Verdict.PASSED), only=[first.id])
    record(replace(some, lab=STRICTER), tmp_path)
    assert suite_of_record(tmp_path) == RADIX_TREE.suite, "four tasks have not been graded again"
    record(replace(complete(), lab=STRICTER), tmp_path)
    assert suite_of_record(tmp_path) == STRICTER.suite


def test_progress_from_before_versions_is_of_the_first(tmp_path: Path) -> None:
    record(complete(), tmp_path)
    path = tmp_path / PROGRESS
    table = json.loads(path.read_text("utf-8"))
    del table["labs"]["radix_tree"]["suite"]
    path.write_text(json.dumps(table), "utf-8")
    assert suite_of_record(tmp_path) == 1


def test_the_engine_goes_on_with_such_a_part_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "labs" / "radix_tree"
    shutil.copytree(ROOT / "solutions" / "radix_tree", folder)
    monkeypatch.setattr("yaie.parts.find_mine", lambda lab: folder)
    from yaie.curriculum.progress import part_digest

    record(replace(complete(), digest=part_digest(folder)), tmp_path)
    assert by_progress(RADIX_TREE) == ("yours", "all tasks passed")
    assert by_progress(STRICTER) == ("yours", "passed by an older suite: grade again")
