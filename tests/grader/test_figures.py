"""The figures of the self-check, lab by lab."""

from dataclasses import replace
from pathlib import Path

from grader.selfcheck.labcheck import LabCheck
from grader.selfcheck.mutant import Mutant
from grader.selfcheck.report import HEADS, rows, write_figures
from yaie.curriculum.manifest import load_curriculum

CURRICULUM = load_curriculum()
TREE = CURRICULUM["radix_tree"]


def test_the_figures_are_kept_as_a_table_with_every_survivor_and_its_reason(tmp_path: Path) -> None:
    survivor = Mutant("a.py", "f", "return 1", "1 -> 2", "4.1", "")
    check = LabCheck(TREE, killed=3, num_mutants=4, survivors=[(survivor, "Nobody reads it.")])
    write_figures([check], CURRICULUM, tmp_path / "figures.md")
    text = (tmp_path / "figures.md").read_text()
    assert "| radix_tree | 5 |" in text
    assert "3/4 75.0%" in text
    assert "`a.py`, `f`: `` return 1 ``, 1 -> 2. Nobody reads it." in text
    assert rows([check])[0][0] == "radix_tree"


def test_the_figures_of_labs_that_are_not_checked_now_stay(tmp_path: Path) -> None:
    file, survivor = tmp_path / "figures.md", Mutant("a.py", "f", "return 1", "1 -> 2", "4.1", "")
    tree = LabCheck(TREE, num_tests=7, killed=3, num_mutants=4, survivors=[(survivor, "Why not.")])
    write_figures([tree], CURRICULUM, file)
    sampler = LabCheck(CURRICULUM["sampler"], num_tests=5, killed=1, num_mutants=1, wrong=2,
                       num_wrong=2, layout_killed=1, num_layout=3, seconds=2.4)  # fmt: skip
    write_figures([sampler], CURRICULUM, file)
    table = [line.split(" | ") for line in file.read_text().splitlines() if line.startswith("| ")]
    assert [row[0] for row in table] == ["| lab", "| sampler", "| radix_tree", "| all"]
    total = dict(zip(HEADS, table[-1], strict=True))
    assert (total["tests"], total["wrong"], total["mutants"]) == ("12", "2/2", "4/5 80.0%")
    assert (total["layout"], total["check"]) == ("1/3 33.3%", "2 |")
    assert "Why not." in file.read_text()
    write_figures([replace(tree, survivors=[])], CURRICULUM, file)
    assert "Why not." not in file.read_text()


def test_a_table_with_other_columns_is_forgotten(tmp_path: Path) -> None:
    (tmp_path / "figures.md").write_text("| radix_tree | 5 | 28 |\n")
    write_figures([LabCheck(CURRICULUM["sampler"])], CURRICULUM, tmp_path / "figures.md")
    assert "radix_tree" not in (tmp_path / "figures.md").read_text()
