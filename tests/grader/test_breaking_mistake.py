"""`python -m grader mistake`: a wrong version becomes a candidate, or the sentence that it is caught."""

import io
from dataclasses import replace
from pathlib import Path

import pytest

from grader.breaking import mistake
from grader.breaking.mistake import as_toml, read_mistake
from grader.selfcheck.variants import known_wrong
from grader.verdict import LabResult, Verdict
from tests.grader.results import RADIX_TREE, graded, result_of
from yaie.core.compat import tomllib
from yaie.core.errors import ConfigError
from yaie.curriculum.manifest import ROOT, Lab, load_curriculum
from yaie.system.terminal import Terminal

RIGHT = ROOT / "solutions/radix_tree/radix_tree.py"


def wrong_file(lab: Lab, name: str, folder: Path) -> tuple[Path, str, str]:
    """A known mistake of one file as a learner hands it in; the file's name and its right text."""
    wrong = next(each for each in known_wrong(lab) if each.name == name)
    (file,) = {edit[0] for edit in wrong.edits}
    right = text = (ROOT / "solutions" / lab.key / file).read_text("utf-8")
    for _, old, new in wrong.edits:
        text = text.replace(old, new)
    path = folder / f"{name}{Path(file).suffix}"
    path.write_text(text, "utf-8")
    return path, file, right


@pytest.mark.parametrize(
    ("key", "name", "task"),
    [
        ("radix_tree", "locks_do_not_count", "4.4"),
        ("radix_tree", "tokens_left_behind", "4.5"),
        ("sampler", "frequency_counts_the_prompt", "1.1"),
        ("cuda_ops", "norm_weight_twice", ""),
    ],
)
def test_the_edits_of_a_candidate_make_the_file_again(
    key: str, name: str, task: str, tmp_path: Path
) -> None:
    path, file, right = wrong_file(load_curriculum()[key], name, tmp_path)
    found = read_mistake(load_curriculum()[key], path)
    assert (found.name, found.task) == (file, task)
    table = tomllib.loads(as_toml(found, "attack_x"))
    assert (table["misconception"], table["task"], table["also"]) == (
        "FILL IN",
        task or "FILL IN",
        [],
    )
    for edit in table["edit"]:
        assert edit["file"] == file
        assert right.count(edit["old"]) == 1
        right = right.replace(edit["old"], edit["new"])
    assert right == path.read_text("utf-8")


def test_an_edit_of_what_occurs_twice_is_told_by_the_lines_around_it(tmp_path: Path) -> None:
    old, new = "a\nx\nb\nx\nc\n", "a\nx\nb\ny\nc\n"
    edits, changed = mistake.edits_between(old, new)
    assert changed == [3]
    ((before, after),) = edits
    assert old.count(before) == 1
    assert old.replace(before, after) == new


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            RIGHT.read_text("utf-8") + "\n# A comment.\n",
            "does what solutions/radix_tree/radix_tree.py does",
        ),
        ("x = 1\n", "is a version of no file"),
        (RIGHT.read_text("utf-8").replace("def insert(", "def insert((", 1), r"line \d+: "),
    ],
)
def test_a_file_that_is_no_mistake_is_refused(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "a_mistake.py"
    path.write_text(text, "utf-8")
    with pytest.raises(ConfigError, match=why):
        read_mistake(RADIX_TREE, path)


def said(path: Path, root: Path, result: LabResult, patch: pytest.MonkeyPatch) -> tuple[int, str]:
    out = io.StringIO()
    console = Terminal(file=out, width=200)
    patch.setattr(mistake, "grade_lab", lambda submission, **how: result)
    return mistake.run("radix_tree", path, console, console, root), out.getvalue()


def test_what_the_grader_catches_is_told_with_its_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, *_ = wrong_file(RADIX_TREE, "locks_do_not_count", tmp_path)
    verdicts = {"4.4": Verdict.FAILED}
    tasks = [graded(t.id, verdicts.get(t.id, Verdict.PASSED)) for t in RADIX_TREE.tasks]
    code, text = said(path, tmp_path, result_of(*tasks), monkeypatch)
    assert code == 1
    assert "The grader catches it already, in task 4.4." in text
    assert not (tmp_path / "breaks").exists()


def test_full_marks_make_a_candidate_with_the_attack_that_tells_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, *_ = wrong_file(RADIX_TREE, "locks_do_not_count", tmp_path)
    (tmp_path / "breaks").mkdir()
    (tmp_path / "breaks/radix_tree.py").write_text(
        "def attack_locks(part):\n"
        "    tree = part.RadixTree(1)\n"
        "    _, node = tree.insert([1], [1])\n"
        "    for call in (tree.lock, tree.lock, tree.unlock):\n"
        "        call(node)\n"
        "    return tree.num_evictable\n"
    )
    full = replace(result_of(*(graded(t.id, Verdict.PASSED) for t in RADIX_TREE.tasks)))
    code, text = said(path, tmp_path, full, monkeypatch)
    assert code == 0
    assert "Wrote breaks/radix_tree.locks_do_not_count.toml." in text
    candidate = (tmp_path / "breaks/radix_tree.locks_do_not_count.toml").read_text()
    assert candidate.startswith("# attack_locks tells it from the reference.\n")
    with pytest.raises(ConfigError, match="is there already: remove it"):
        said(path, tmp_path, full, monkeypatch)
