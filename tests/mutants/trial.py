"""Puts mutants to the test: which tests run on each, what their answers mean, and whether a test that
noticed one passes without it."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from grader.selfcheck.proof import imported_by
from tests.mutants.population import EngineMutant
from tests.mutants.reached import Reached, TimedTest
from tests.mutants.results import KILLED, SURVIVED, TIMEOUT, Result, Results, result_of
from tests.mutants.warm import Order

PATIENCE = 10.0
LEAST_PATIENCE = 20.0
"""Seconds. A test may take this many times what it took when it was recorded, and at least so long."""
CHECK_SECONDS = 600.0
AT_ONCE = 200
"""Mutants whose sources are in memory at the same time."""


class Runs(Protocol):
    """`Warm`, or what stands in for it."""

    def run(self, orders: Iterable[Order]) -> Iterable[dict[str, Any]]: ...


def patience(test: TimedTest) -> float:
    return max(LEAST_PATIENCE, PATIENCE * test.seconds)


def reaching(
    mutant: EngineMutant,
    reached: Reached,
    importers: Callable[[str], list[str]],
    own_tests: Callable[[str], list[str]] = lambda file: [],
) -> list[TimedTest]:
    """The tests whose coverage reaches the mutated line; of a line that runs when its module is imported
    those that reach the module and those of the files that import it (`own_tests`), or else those that
    reach a module that imports it (`importers`).

    First come the files named after the module (tests/core/test_errors.py of yaie/core/errors.py), then
    those of the same package, then those about the fewest modules, and of these the fastest. Within a
    file its own order holds, for the fixtures' sake.
    """
    tests = reached.at(mutant.file, mutant.line)
    if mutant.is_at_import:
        tests |= reached.anywhere(mutant.file)
        tests |= {test for file in own_tests(mutant.file) for test in reached.of(file)}
        if not tests:
            tests = {test for file in importers(mutant.file) for test in reached.anywhere(file)}
    by_file: defaultdict[str, list[TimedTest]] = defaultdict(list)
    for test in tests:
        by_file[test.file].append(test)

    module = Path(mutant.file)

    def promise(file: str) -> tuple[bool, bool, int, float, str]:
        is_other = Path(file).parts[1:2] != module.parts[1:2]
        is_named = Path(file).stem == f"test_{module.stem}" and not is_other
        mean = sum(test.seconds for test in by_file[file]) / len(by_file[file])
        return not is_named, is_other, reached.breadth(file), mean, file

    return [
        test
        for file in sorted(by_file, key=promise)
        for test in sorted(by_file[file], key=lambda t: t.name)
    ]


def importers_in(root: Path, files: Sequence[str]) -> Callable[[str], list[str]]:
    """A function that tells which of these modules import a module."""
    imported = {file: set(imported_by(root / file, root, ("yaie",))) for file in files}
    return lambda wanted: [file for file, found in imported.items() if root / wanted in found]


def try_all(
    mutants: Sequence[EngineMutant],
    tests_of: Callable[[EngineMutant], list[TimedTest]],
    warm: Runs,
    results: Results,
    seconds: float,
    advance: Callable[[int], None],
) -> set[str]:
    """Fill in the results of all mutants that have none yet. Returns the tests that fail here on the
    engine as it is: what they noticed does not count."""
    broken: set[str] = set()
    waiting = [mutant for mutant in mutants if mutant.key not in results.by_key]
    advance(len(mutants) - len(waiting))
    by_key = {mutant.key: mutant for mutant in mutants}
    while True:
        for begin in range(0, len(waiting), AT_ONCE):
            some = waiting[begin : begin + AT_ONCE]
            _try(some, tests_of, warm, results, seconds, broken, advance)
        killers = {r.test for r in results.by_key.values() if r.test and not r.is_checked}
        broken |= _broken(killers - broken, warm)
        noticed = [result for result in results.by_key.values() if result.test]
        for result in noticed:
            result.is_checked = result.test not in broken
        results.keep()
        waiting = [by_key[r.key] for r in noticed if r.test in broken and r.key in by_key]
        if not waiting:
            return broken
        advance(-len(waiting))


def _try(
    mutants: Sequence[EngineMutant],
    tests_of: Callable[[EngineMutant], list[TimedTest]],
    warm: Runs,
    results: Results,
    seconds: float,
    broken: set[str],
    advance: Callable[[int], None],
) -> None:
    orders = []
    chosen: dict[int, tuple[EngineMutant, dict[str, TimedTest]]] = {}
    for number, mutant in enumerate(mutants):
        tests = [test for test in tests_of(mutant) if test.name not in broken]
        if not tests:
            results.add(result_of(mutant, SURVIVED))
            advance(1)
            continue
        chosen[number] = mutant, {test.name: test for test in tests}
        timed = [(test.name, patience(test)) for test in tests]
        orders.append(Order(number, mutant.file, mutant.source, timed, seconds))
    for answer in warm.run(orders) if orders else ():
        mutant, known = chosen[answer["id"]]
        results.add(judge(mutant, known, answer))
        advance(1)


def judge(mutant: EngineMutant, tests: dict[str, TimedTest], answer: dict[str, Any]) -> Result:
    """What an answer of the warm process means."""
    events = answer["events"]
    started = [event for event in events if event["event"] == "start"]
    told = {"of": len(tests), "seconds": answer["seconds"]}
    for event in events:
        if event["event"] == "failed":
            is_slow = event["why"].startswith("Failed: Timeout")
            status = TIMEOUT if is_slow else KILLED
            told |= {"test": event["test"], "why": event["why"], "ran": max(0, len(started) - 1)}
            return result_of(mutant, status, **told)
    last = started[-1] if started else None
    if answer["problem"] == "the process died":
        told |= {"test": last["test"] if last else next(iter(tests)), "why": answer["problem"]}
        return result_of(mutant, KILLED, ran=max(0, len(started) - 1), **told)
    if answer["problem"] and last is not None:  # out of time
        test = tests.get(last["test"])
        if test and answer["seconds"] - last["at"] > patience(test):
            told |= {"test": test.name, "why": answer["problem"]}
            return result_of(mutant, TIMEOUT, ran=len(started) - 1, **told)
        return result_of(mutant, SURVIVED, why=answer["problem"], ran=len(started) - 1, **told)
    if answer["problem"]:  # while pytest was still collecting, as it is if a module never ends
        told |= {"test": next(iter(tests)), "why": answer["problem"]}
        return result_of(mutant, TIMEOUT, **told)
    return result_of(mutant, SURVIVED, ran=len(started), **told)


def _broken(tests: Iterable[str], warm: Runs) -> set[str]:
    """Those of these tests, or files of tests, that do not pass on the engine as it is, each alone."""
    names = sorted(tests)
    orders = [
        Order(number, "", "", [(name, CHECK_SECONDS)], CHECK_SECONDS)
        for number, name in enumerate(names)
    ]
    found = set()
    for answer in warm.run(orders) if orders else ():
        failed = any(event["event"] == "failed" for event in answer["events"])
        if failed or answer["problem"]:
            found.add(names[answer["id"]])
    return found
