"""What is recorded of tests, and which mutants there are for them to notice."""

from pathlib import Path

import pytest

from tests.mutants import reached as reached_module
from tests.mutants import warm as warm_module
from tests.mutants.population import argued, modules, mutants_of, population
from tests.mutants.project import ENGINE, JUDGED, SMALL, line, names, store_of
from tests.mutants.reached import Reached, copy_of_tree, judged_files
from tests.mutants.results import entry, result_of
from tests.mutants.trial import importers_in, reaching

# --- what is recorded ---


def test_a_line_is_reached_by_tests_by_users_of_a_fixture_and_from_a_process(project: Path) -> None:
    reached = store_of(project).load(JUDGED)
    shared = {"test_of_the_fixture", "test_that_shares_it"}
    assert names(reached.at(SMALL, line("    return min(value, LIMIT)"))) == shared
    assert names(reached.at(SMALL, line("    return 2 * value"))) == {"test_in_a_process"}
    assert reached.at(SMALL, line("    return value + 1")) == set()
    assert "test_that_fails" not in names(reached.anywhere(SMALL))
    assert store_of(project).without_tests(JUDGED) == []


def test_a_test_file_is_recorded_again_when_something_that_it_hangs_on_changes(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reached_module, "_digest", reached_module._digest.__wrapped__)
    store = store_of(project)
    assert store.stale(JUDGED) == []
    for name, stale in (
        ("tests/helper.py", JUDGED[:1]),
        ("yaie/user.py", JUDGED[:1]),
        ("tests/test_doubled.py", JUDGED[1:]),
        (SMALL, JUDGED),
    ):
        text = (project / name).read_text()
        (project / name).write_text(text + "\n")
        assert store.stale(JUDGED) == stale, name
        (project / name).write_text(text)


def test_files_are_found_below_folders_and_what_is_not_there_is_said(project: Path) -> None:
    assert judged_files(project, ["tests"]) == JUDGED
    assert judged_files(project, [JUDGED[0], "tests"]) == JUDGED
    assert modules(project, ["yaie"])[-2:] == [SMALL, "yaie/user.py"]
    for find in (judged_files, modules):
        with pytest.raises(FileNotFoundError, match="there is no nowhere"):
            find(project, ["nowhere"])


# --- which mutants, and which tests for them ---


def test_what_only_a_type_checker_or_a_command_reads_is_left_alone(project: Path) -> None:
    found = list(mutants_of(project, SMALL))
    assert {mutant.site.line for mutant in found} == {
        "LIMIT = 3",
        "return min(value, LIMIT)",
        "return 2 * value",
        "return value + 1",
    }
    assert {mutant.site.line for mutant in found if mutant.is_at_import} == {"LIMIT = 3"}
    assert {m.line for m in found if m.site.function == "doubled"} == {line("    return 2 * value")}


def test_a_sample_is_the_same_for_the_same_seed(project: Path) -> None:
    files = modules(project, ["yaie"])
    every = [mutant.key for mutant in population(project, files, 0, 0)]
    some = [mutant.key for mutant in population(project, files, 4, 1)]
    assert len(set(some)) == 4
    assert [key for key in every if key in some] == some
    assert [mutant.key for mutant in population(project, files, 4, 1)] == some
    assert {tuple(m.key for m in population(project, files, 4, seed)) for seed in range(9)} != {
        tuple(some)
    }


def test_a_line_that_runs_at_import_is_for_the_tests_of_its_module_or_of_importers(
    project: Path,
) -> None:
    reached = store_of(project).load(JUDGED)
    importers = importers_in(project, modules(project, ["yaie"]))
    assert importers("yaie/constants.py") == ["yaie/user.py"]

    def chosen(file: str) -> set[str]:
        (mutant, *_) = (mutant for mutant in mutants_of(project, file) if mutant.is_at_import)
        return names(reaching(mutant, reached, importers))

    assert chosen(SMALL) == {"test_of_the_fixture", "test_that_shares_it", "test_in_a_process"}
    assert chosen("yaie/constants.py") == {"test_most"}


def test_a_test_may_only_read_a_constant_of_the_module(project: Path) -> None:
    """Then it reaches no line of it: the module was imported long before."""
    reached, own_tests = store_of(project).load(JUDGED), importers_in(project, JUDGED)
    assert own_tests(SMALL) == own_tests("yaie/user.py") == [JUDGED[0]]
    mutant = next(m for m in mutants_of(project, SMALL) if m.is_at_import)
    more = names(reaching(mutant, reached, lambda file: [], own_tests))
    assert more - names(reaching(mutant, reached, lambda file: [])) == {"test_most"}


def test_files_that_are_about_the_module_come_first_and_of_these_the_fastest(
    project: Path,
) -> None:
    reach = {SMALL: {str(line("    return 2 * value")): [0, 1]}}
    named_reach = {SMALL: {line: [0] for line in reach[SMALL]}, "yaie/user.py": {}}
    reached = Reached([
        {"tests": [["wide.py::a", 1], ["wide.py::b", 1]], "lines": {**reach, "yaie/user.py": {}}},
        {"tests": [["slow.py::a", 9], ["slow.py::b", 9]], "lines": reach},
        {"tests": [["fast.py::a", 3], ["fast.py::b", 4]], "lines": reach},
        {"tests": [["tests/small.py/test_small.py::a", 99]], "lines": named_reach},
    ])  # fmt: skip
    mutant = next(m for m in mutants_of(project, SMALL) if m.site.function == "doubled")
    found = [test.file for test in reaching(mutant, reached, lambda file: [])]
    named = ["tests/small.py/test_small.py"]
    assert found == named + 2 * ["fast.py"] + 2 * ["slow.py"] + 2 * ["wide.py"]


# --- slots and survivors ---


def test_a_slot_is_as_it_was_before_the_next_mutant(project: Path, tmp_path: Path) -> None:
    pristine, slot = tmp_path / "pristine", tmp_path / "0"
    copy_of_tree(project, pristine)
    copy_of_tree(project, slot)
    before = (slot / SMALL).stat().st_mtime
    warm_module.change(slot, SMALL, "changed")
    assert (slot / SMALL).stat().st_mtime != before  # or what was compiled would still hold
    warm_module.restore(slot, pristine)
    warm_module.restore(slot, pristine)
    assert (slot / SMALL).read_text() == ENGINE
    assert (slot / SMALL).stat().st_mtime == before


def test_a_survivor_is_argued_in_the_words_in_which_it_is_told(
    project: Path, tmp_path: Path
) -> None:
    (mutant, *_) = mutants_of(project, SMALL)
    text = entry(result_of(mutant, "survived"))
    (tmp_path / "survivors.toml").write_text(text)
    assert argued(tmp_path / "survivors.toml") == {}  # no reason yet
    (tmp_path / "survivors.toml").write_text(text.replace("''", "'nobody reads it'"))
    assert argued(tmp_path / "survivors.toml") == {mutant.key: "nobody reads it"}


def test_argued_survivors_of_the_engine_are_mutants_of_it() -> None:
    root = Path(__file__).resolve().parents[2]
    reasons = argued()
    files = {file for file, *_ in reasons}
    found = {mutant.key for file in files for mutant in mutants_of(root, file)}
    assert reasons.keys() <= found
