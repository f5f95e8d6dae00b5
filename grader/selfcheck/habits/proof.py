"""Which habits a lab's graders catch: each is graded by the tests of its own task alone."""

import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from grader.selfcheck.farm import Farm, Job
from grader.selfcheck.habits import habits_of
from grader.selfcheck.killing import MUTANT_PATIENCE, read_survivors
from grader.selfcheck.mutant import Mutant
from grader.selfcheck.variants import GRADER, IGNORED, reference_folder
from grader.verdict import Verdict
from yaie.curriculum.manifest import Lab

ARGUED = GRADER / "survivors" / "habits"
EQUAL = ("equal", "outside of the contract")


@dataclass(slots=True)
class Habits:
    """What came of a lab's habits. graded: how many were. living: those that no test of their task
    caught, each with the reason why it may live, or "". gone: argued, and not there any more.
    outdated: argued, and caught."""

    lab: Lab
    graded: list[Mutant] = field(default_factory=list)
    living: list[tuple[Mutant, str]] = field(default_factory=list)
    gone: list[tuple[str, ...]] = field(default_factory=list)
    outdated: list[tuple[str, ...]] = field(default_factory=list)

    @property
    def num_caught(self) -> int:
        return len(self.graded) - len(self.living)

    @property
    def num_equal(self) -> int:
        """Those that are argued to be no wrong version: EQUAL begins the reason."""
        return sum(reason.startswith(EQUAL) for _, reason in self.living)

    @property
    def unargued(self) -> list[Mutant]:
        """Those that live without a reason."""
        return [mutant for mutant, reason in self.living if not reason]


def prove(
    lab: Lab, jobs: int, advance: Callable[[int], None], *, step: int = 1, first: int = 0
) -> Habits:
    """Grade the habits of a lab, of `step` each one, from the `first` on. advance: told how many were
    graded since."""
    reference = reference_folder(lab)
    every = list(habits_of(reference, lab))
    reasons = read_survivors(ARGUED / f"{lab.key}.toml")
    found = Habits(lab, every[first::step])
    found.gone = sorted(reasons.keys() - {habit.key for habit in every})
    scratch = Path(tempfile.mkdtemp(prefix="yaie-habits-"))
    try:
        with Farm(lab.key, jobs) as farm:
            (outcome,) = farm.run([Job("reference", str(reference))])
            slowest = max((test.seconds for test in outcome.tests), default=1.0)
            orders = _orders(found.graded, reference, scratch, MUTANT_PATIENCE * slowest + 1)
            for outcome in farm.run(orders):
                advance(1)
                passed = all(test.verdict is Verdict.PASSED for test in outcome.tests)
                if not outcome.problem and passed:
                    habit = found.graded[int(outcome.id)]
                    found.living.append((habit, reasons.get(habit.key, "")))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    found.living.sort(key=lambda pair: pair[0].key)
    living = {habit.key for habit, _ in found.living}
    found.outdated = sorted({h.key for h in found.graded} & reasons.keys() - living)
    return found


def _orders(habits: Sequence[Mutant], reference: Path, scratch: Path, patience: float) -> list[Job]:
    orders = []
    for index, habit in enumerate(habits):
        folder = scratch / str(index)
        shutil.copytree(reference, folder, ignore=IGNORED)
        (folder / habit.file).write_text(habit.source, "utf-8")
        orders.append(Job(str(index), str(folder), [([habit.task], 1.0)], True, patience))
    return orders
