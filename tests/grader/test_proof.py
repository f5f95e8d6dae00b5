"""What was proven holds as long as nothing changes that it depends on, and not a moment longer."""

import shutil
from pathlib import Path

import pytest

from grader.selfcheck import proof, report
from grader.selfcheck.checks import num_submissions
from grader.selfcheck.cli import selfcheck
from grader.selfcheck.labcheck import LabCheck
from grader.selfcheck.plan import Plan
from grader.selfcheck.proof import Proof, depends_on, digest_of, read_proofs, write_proofs
from yaie.core.errors import ConfigError
from yaie.curriculum.manifest import ROOT, load_curriculum

CURRICULUM = load_curriculum()
TREE, ATTENTION = CURRICULUM["radix_tree"], CURRICULUM["radix_attention"]


def names(lab) -> set[str]:
    return {file.relative_to(ROOT).as_posix() for file in depends_on(lab)}


def test_a_proof_depends_on_the_lab_and_on_what_grades_it() -> None:
    found = names(TREE)
    assert {
        "solutions/radix_tree/radix_tree.py",
        "grader/suites/radix_tree/test_match.py",
        "grader/hints/radix_tree.toml",
        "grader/survivors/radix_tree.toml",
        "grader/recorder.py",
        "grader/kit/generate.py",
        "grader/selfcheck/cuda_mutants.py",
    } <= found
    assert any(name.startswith("grader/known_wrong/radix_tree/") for name in found)
    assert any(name.startswith("grader/known_right/radix_tree/") for name in found)


def test_it_depends_on_other_labs_only_where_they_are_imported() -> None:
    assert not any(name.startswith(("solutions/sampler", "yaie/engine")) for name in names(TREE))
    assert "solutions/paged_cache/kv_pool.py" in names(ATTENTION)


def test_no_notebook_and_no_cache_counts() -> None:
    assert not [name for name in names(TREE) if "explore" in name or "__pycache__" in name]


def test_the_digest_changes_with_the_manifest_and_with_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "labs").mkdir()
    (tmp_path / "a.py").write_text("1")
    manifest = tmp_path / "labs/curriculum.toml"
    shutil.copy(ROOT / "labs/curriculum.toml", manifest)
    monkeypatch.setattr(proof, "depends_on", lambda lab: {tmp_path / "a.py"})
    before = digest_of(TREE, tmp_path)
    assert digest_of(TREE, tmp_path) == before
    (tmp_path / "a.py").write_text("2")
    changed = digest_of(TREE, tmp_path)
    assert changed != before
    manifest.write_text(manifest.read_text().replace('title = "Radix tree"', 'title = "Tree"'))
    assert digest_of(TREE, tmp_path) != changed


def test_proofs_are_kept_as_lines_of_text(tmp_path: Path) -> None:
    path = tmp_path / "record"
    assert read_proofs(path) == {}
    write_proofs({"radix_tree": Proof("ab", 3, 4, 1, 2)}, path)
    assert path.read_text() == "ab  radix_tree 3 4 1 2\n"
    assert read_proofs(path) == {"radix_tree": Proof("ab", 3, 4, 1, 2)}
    path.write_text("ab  radix_tree 3 4\n")  # as they were before layout was counted
    assert read_proofs(path) == {"radix_tree": Proof("ab", 3, 4)}


@pytest.mark.nightly
def test_a_lab_that_is_as_proven_has_no_mutants_to_grade() -> None:
    plan = Plan(proofs={"radix_tree": Proof("ab", 3, 4)})
    assert not plan.grades_mutants_of(TREE)
    assert plan.grades_mutants_of(ATTENTION)
    assert num_submissions(TREE, plan) < num_submissions(TREE, Plan())


def test_the_table_says_what_was_taken_from_the_record() -> None:
    check = LabCheck(TREE, killed=3, num_mutants=4, is_recorded=True)
    assert "3/4 75.0%*" in report.rows([check])[0]
    assert "none" in report.rows([check])[0]  # a lab without kernels has no mutants of layout
    check.layout_killed, check.num_layout = 1, 2
    assert "1/2 50.0%*" in report.rows([check])[0]


def test_only_what_holds_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "record"
    write_proofs({"radix_tree": Proof("old", 1, 1)}, path)
    monkeypatch.setattr(report, "RECORD", path)
    monkeypatch.setattr(report, "FIGURES", tmp_path / "figures.md")
    monkeypatch.setattr(report, "read_proofs", lambda: read_proofs(path))
    good = LabCheck(ATTENTION, killed=9, num_mutants=9)
    report.keep([good, LabCheck(TREE, problems=["a mutant lives"])], CURRICULUM)
    assert read_proofs(path) == {"radix_attention": Proof(digest_of(ATTENTION), 9, 9)}
    assert "| radix_tree |" in (tmp_path / "figures.md").read_text()  # with what it lacks


@pytest.mark.parametrize(
    "given", [{"recorded": True}, {"mutants": False}, {"only_layout": True}], ids=str
)
def test_what_was_not_proven_in_full_is_not_written_down(given: dict[str, bool]) -> None:
    with pytest.raises(ConfigError, match="proven in full"):
        selfcheck(["radix_tree"], write=True, **given)


def test_a_sample_takes_some_known_mistakes_from_all_over():
    every, some = Plan().known_wrong(TREE), Plan(sample=5).known_wrong(TREE)
    assert len(some) == 5 < len(every)
    assert [wrong for wrong in every if wrong in some] == some
    assert every.index(some[-1]) > len(every) // 2
