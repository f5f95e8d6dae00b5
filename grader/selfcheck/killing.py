"""Mutants of the reference: nearly all of them must fail a test, and each survivor be argued."""

import shutil
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from grader.selfcheck.farm import Farm, Job
from grader.selfcheck.labcheck import LabCheck
from grader.selfcheck.layout_mutants import layout_mutants_of
from grader.selfcheck.mutant import Mutant
from grader.selfcheck.mutants import mutants_of
from grader.selfcheck.plan import Plan
from grader.selfcheck.variants import GRADER, IGNORED, reference_folder
from grader.verdict import Verdict
from yaie.core.compat import tomllib
from yaie.curriculum.manifest import Lab

LEAST_KILLED = 0.95
FEW = 20
"""Of fewer mutants not even one may live if 95% are to be killed."""
EQUAL = "equivalent"
"""How the reason of a mutant begins that does what the reference does."""
ELSEWHERE_EFFORT = 0.1
"""Share of the generated examples for tasks that a mistake is not about."""
MUTANT_PATIENCE = 2.0
"""A mutant's test may take this many times what the reference's slowest test took, and a second."""
DOES_NOT_COMPILE = "does not compile"
"""In what is said of a mutant of CUDA C++ that is no program, and so no mutant."""

Advance = Callable[[int], None]


def all_mutants(lab: Lab, plan: Plan) -> Iterator[Mutant]:
    """Those that a plan has graded."""
    if plan.grades_mutants_of(lab):
        if not plan.only_layout:
            yield from mutants_of(reference_folder(lab), lab)
        yield from layout_mutants_of(reference_folder(lab), lab)


def check_mutants(check: LabCheck, farm: Farm, scratch: Path, plan: Plan, advance: Advance) -> None:
    """Nearly every mutant is killed, and each survivor is argued; an argument for one that a test kills
    is out of date. Mutants of layout count apart, without those argued to be equivalent: a cast that the
    reference writes for its reader, and PyTorch would make, is no mistake.

    Where there are so few that 95% of them are all (fewer than 20), the argued ones may live: one that
    no test can tell from the reference would fail the lab otherwise, and nothing could be done about it.
    """
    lab = check.lab
    reference = reference_folder(lab)
    reasons = survivors(lab)
    mutants = list(all_mutants(lab, plan))
    jobs = []
    for index, mutant in enumerate(mutants):
        folder = scratch / f"mutant-{index}"
        shutil.copytree(reference, folder, ignore=IGNORED)
        (folder / mutant.file).write_text(mutant.source, "utf-8")
        # Its own task first: that is where it will most likely show.
        others = [task.id for task in lab.tasks if task.id != mutant.task]
        stages = [([mutant.task], 1.0), (others, ELSEWHERE_EFFORT)]
        patience = MUTANT_PATIENCE * check.slowest_test + 1
        jobs.append(Job(str(index), str(folder), stages, True, patience))
    programs = dict(enumerate(mutants))
    for outcome in farm.run(jobs):
        advance(1)
        passed = all(test.verdict is Verdict.PASSED for test in outcome.tests)
        if DOES_NOT_COMPILE in outcome.problem:
            del programs[int(outcome.id)]
        elif not outcome.problem and passed:
            mutant = mutants[int(outcome.id)]
            check.survivors.append((mutant, reasons.get(mutant.key, "")))
    live = [(m, is_equal(reason)) for m, reason in check.survivors if m.is_layout]
    num_equal = sum(equal for _, equal in live)
    num_layout = sum(mutant.is_layout for mutant in programs.values())
    check.num_layout = num_layout - num_equal
    check.layout_killed = num_layout - len(live)
    check.num_mutants = len(programs) - num_layout
    check.killed = check.num_mutants - (len(check.survivors) - len(live))
    if not plan.only_layout:
        _report_arguments(check, reasons, {mutant.key for mutant in mutants})
    _report_survivors(check)


def is_equal(reason: str) -> bool:
    """Whether a mutant of layout is argued to be no mistake."""
    return reason.lower().startswith(EQUAL)


def _report_arguments(
    check: LabCheck, reasons: Collection[tuple[str, ...]], every: Collection[tuple[str, ...]]
) -> None:
    """Of mutants that are gone, and of those that a test kills."""
    living = {mutant.key for mutant, _ in check.survivors}
    for key in reasons:
        if key not in living:
            what = "a test kills" if key in every else "does not exist"
            check.problems.append(
                f"survivors/{check.lab.key}.toml argues a mutant that {what}: {' | '.join(key)}"
            )


def _report_survivors(check: LabCheck) -> None:
    check.problems += [
        f"mutant survives without a reason: {' | '.join(mutant.key)}"
        for mutant, reason in check.survivors
        if not reason
    ]
    for killed, mutants, of_what, is_layout in (
        (check.killed, check.num_mutants, "mutants", False),
        (check.layout_killed, check.num_layout, "mutants of layout", True),
    ):
        argued = sum(
            m.is_layout == is_layout
            for m, reason in check.survivors
            if reason and not (is_layout and is_equal(reason))
        )
        may_live = argued if mutants < FEW else 0
        if killed + may_live < LEAST_KILLED * mutants:
            check.problems.append(f"only {killed / mutants:.1%} of the {of_what} are killed")


def survivors(lab: Lab) -> dict[tuple[str, str, str, str], str]:
    """The mutants of a lab that may live, each with the reason."""
    return read_survivors(GRADER / "survivors" / f"{lab.key}.toml")


def read_survivors(path: Path) -> dict[tuple[str, str, str, str], str]:
    """Reasons by file, function, line and change. Empty if there is no such file."""
    if not path.is_file():
        return {}
    table = tomllib.loads(path.read_text("utf-8"))
    return {
        (entry["file"], entry["function"], entry["line"], entry["change"]): entry["reason"]
        for entry in table.get("survivor", [])
    }
