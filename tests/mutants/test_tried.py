"""Which mutants die, by whom, and what is written of them."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.mutants.population import modules, mutants_of, population
from tests.mutants.project import JUDGED, SMALL, store_of
from tests.mutants.reached import TimedTest, copy_of_tree
from tests.mutants.results import Results
from tests.mutants.trial import importers_in, judge, patience, reaching, try_all
from tests.mutants.warm import Order, Warm

# --- on trial ---


TRIED = {
    ("capped", "return None"),
    ("", "3 -> 4"),
    ("", "9 -> 10"),
    ("doubled", "2 -> 3"),
    ("never", "Add -> Sub"),
}


@pytest.fixture(scope="module")
def tried(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Some mutants of the engine and what became of them; the libraries are not needed here."""
    scratch = tmp_path_factory.mktemp("slots")
    for name in ("pristine", "0", "1"):
        copy_of_tree(project, scratch / name)
    reached = store_of(project).load(JUDGED)
    importers = importers_in(project, modules(project, ["yaie"]))
    results = Results(project / "results.json", {"seed": 0})
    wanted = [
        mutant
        for mutant in population(project, modules(project, ["yaie"]), 0, 0)
        if (mutant.site.function, mutant.site.change) in TRIED
    ]
    with Warm(scratch, 2, libraries=()) as warm:
        broken = try_all(
            wanted,
            lambda mutant: reaching(mutant, reached, importers),
            warm,
            results,
            60.0,
            lambda count: None,
        )
    assert broken == set()
    assert len(results.by_key) == len(wanted) == len(TRIED)
    return results


def status_of(results: Results, function: str, change: str) -> tuple[str, str]:
    (found,) = (r for r in results.by_key.values() if (r.function, r.change) == (function, change))
    return found.status, found.test.partition("::")[2]


def test_a_mutant_is_killed_by_the_first_test_that_fails(tried: Results) -> None:
    assert status_of(tried, "capped", "return None") == ("killed", "test_of_the_fixture")
    assert status_of(tried, "", "3 -> 4") == ("killed", "test_of_the_fixture")
    assert status_of(tried, "", "9 -> 10") == ("killed", "test_most")


def test_a_process_that_a_test_starts_runs_the_mutant_too(tried: Results) -> None:
    assert status_of(tried, "doubled", "2 -> 3") == ("killed", "test_in_a_process")


def test_what_no_test_reaches_survives(tried: Results) -> None:
    assert status_of(tried, "never", "Add -> Sub") == ("survived", "")
    counts = tried.counts()
    assert counts["not reached"] == counts["survived"] == 1
    assert counts["noticed"] == counts["killed"] == 4
    assert all(result.is_checked for result in tried.by_key.values() if result.test)


def test_the_file_says_all_and_an_equal_run_goes_on_from_it(tried: Results) -> None:
    table = json.loads(tried.path.read_text())
    assert table["counts"] == tried.counts()
    assert Results(tried.path, {"seed": 0}).by_key == tried.by_key
    assert Results(tried.path, {"seed": 1}).by_key == {}
    assert Results(tried.path, {"seed": 0}, anew=True).by_key == {}


# --- what answers mean ---


class Answers:
    """Stands in for the warm process. Tests in `fails` fail, on whatever they run."""

    def __init__(self, fails: set[str]) -> None:
        self.fails = fails

    def run(self, orders: Iterable[Order]) -> Iterable[dict[str, Any]]:
        for order in orders:
            events = []
            for name, _ in order.tests:
                events.append({"event": "start", "test": name, "at": 0.0})
                if name in self.fails:
                    events.append({"event": "failed", "test": name, "why": "no"})
                    break
            yield {"id": order.id, "events": events, "problem": "", "seconds": 1.0}


def test_a_test_that_fails_without_a_mutant_kills_none(project: Path, tmp_path: Path) -> None:
    wanted = list(mutants_of(project, SMALL))
    two = [TimedTest("a.py::broken", 1.0), TimedTest("a.py::good", 2.0)]
    results = Results(tmp_path / "results.json", {})
    told: list[int] = []
    broken = try_all(wanted, lambda _: two, Answers({"a.py::broken"}), results, 9.0, told.append)
    assert broken == {"a.py::broken"}
    assert {result.status for result in results.by_key.values()} == {"survived"}
    assert sum(told) == len(wanted)


def answer(problem: str = "", at: float = 1.0, **event: str) -> dict[str, Any]:
    events: list[dict[str, Any]] = [{"event": "start", "test": "a.py::x", "at": at}]
    if event:
        events.append({"event": "failed", "test": "a.py::x", **event})
    return {"id": 0, "events": events, "problem": problem, "seconds": 120.0}


@pytest.mark.parametrize(
    ("told", "status", "ran"),
    [
        (answer(), "survived", 1),
        (answer(why="assert 1 == 2"), "killed", 0),
        (answer(why="Failed: Timeout (>20.0s) from pytest-timeout."), "timeout", 0),
        (answer("the process died"), "killed", 0),
        (answer("out of time", at=1.0), "timeout", 0),  # one test for 119 s
        (answer("out of time", at=110.0), "survived", 0),  # there were too many
        ({**answer("out of time"), "events": []}, "timeout", 0),  # in an import
    ],
)
def test_an_answer_is_judged(project: Path, told: dict[str, Any], status: str, ran: int) -> None:
    test = TimedTest("a.py::x", 0.5)
    assert patience(test) == 20.0
    (mutant, *_) = mutants_of(project, SMALL)
    result = judge(mutant, {test.name: test}, told)
    assert (result.status, result.ran, result.of) == (status, ran, 1)
    assert bool(result.test) == (status != "survived")
