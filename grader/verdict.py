"""What grading finds out: for a test, a task, a lab. Plain data that goes through JSON unchanged."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from yaie.core.compat import StrEnum
from yaie.curriculum.manifest import Lab, Task

BUSY_WHY = "Other programs keep this machine busy: grade again when they are done."


class Verdict(StrEnum):
    """NOT_IMPLEMENTED is a stub that is still one; NOT_VERIFIED needs what this machine lacks."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_IMPLEMENTED = "not implemented yet"
    NOT_VERIFIED = "not verified here"


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a test did not pass, in the order in which a person wants to read it.

    claim: what must hold. problem: what happened instead. script: the calls that led there; is_program:
    to be pasted into an interpreter, where they lead there again.
    before, after: the state around the last of them. where: file, line and source of the learner's code.
    why: the misconception, where the grader knows it.
    """

    claim: str
    problem: str
    expected: str = ""
    got: str = ""
    script: tuple[str, ...] = ()
    before: str = ""
    after: str = ""
    where: str = ""
    why: str = ""
    is_program: bool = False


@dataclass(frozen=True, slots=True)
class Again:
    """Where in a test it failed, so that `grader/replay.py` can go there again.

    search: which of the test's searches for counterexamples found one, from 1; 0 if it failed outside
    of them. version, example: of Hypothesis, and the example as it encodes it; "" if there is none.
    script, call: the last watched call, by the number of its script; call 0 if none was made.
    """

    search: int = 0
    version: str = ""
    example: str = ""
    script: int = 0
    call: int = 0


@dataclass(frozen=True, slots=True)
class TestResult:
    """One test of a suite. waits_for: the task whose stub it ran into. again: if it failed; None as
    well where its process died. left_open: what it could not verify here although it passed."""

    __test__ = False  # not for pytest to collect

    name: str
    task: str
    verdict: Verdict
    seconds: float = 0.0
    waits_for: str = ""
    explanation: Explanation | None = None
    again: Again | None = None
    left_open: str = ""


@dataclass(frozen=True, slots=True)
class TaskResult:
    """All tests of one task together; passed only if every one of them did."""

    task: Task
    tests: tuple[TestResult, ...]

    @property
    def verdict(self) -> Verdict:
        found = {test.verdict for test in self.tests}
        for verdict in (Verdict.FAILED, Verdict.NOT_IMPLEMENTED, Verdict.NOT_VERIFIED):
            if verdict in found:
                return verdict
        return Verdict.PASSED if self.tests else Verdict.NOT_VERIFIED

    @property
    def points(self) -> int:
        return self.task.points if self.verdict is Verdict.PASSED else 0

    @property
    def worst(self) -> TestResult | None:
        """The test that decided the verdict; None if all passed."""
        return next((test for test in self.tests if test.verdict is self.verdict), None)

    @property
    def waits_for(self) -> str:
        """The other task that must be written before this one can be graded, if that is why."""
        worst = self.worst
        own = worst is None or worst.waits_for in ("", self.task.id)
        return "" if own or worst is None else worst.waits_for


@dataclass(frozen=True, slots=True)
class LabResult:
    """One grading of one lab.

    only: the tasks that were asked for, all if empty. open_places: of tasks, asked for or not, with a
    stub that is still one; see `places.py`. digest: of the graded source, "" if it changed
    meanwhile. problem: why nothing could be graded (a file that is not Python, a missing folder).
    replay: lines of a report that say how to run the first failure again; see `grader/scratch.py`.
    no_replay, unkept: a sentence, if the file for that, or progress, could not be written.
    """

    lab: Lab
    tasks: tuple[TaskResult, ...]
    digest: str = ""
    seconds: float = 0.0
    problem: Explanation | None = None
    only: tuple[str, ...] = ()
    open_places: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    output: str = field(default="", repr=False)
    replay: tuple[str, ...] = ()
    no_replay: str = ""
    unkept: str = ""

    @property
    def points(self) -> int:
        return sum(task.points for task in self.tasks)

    @property
    def max_points(self) -> int:
        """Of the tasks that were asked for."""
        return sum(task.task.points for task in self.tasks)

    @property
    def first_failed(self) -> TestResult | None:
        """The failure that a report tells in full."""
        failed = (task.worst for task in self.tasks if task.verdict is Verdict.FAILED)
        return next(failed, None)

    @property
    def left_open(self) -> tuple[str, ...]:
        """What passing tests could not verify, each once."""
        told = (
            t.left_open for task in self.tasks for t in task.tests if t.verdict is Verdict.PASSED
        )
        return tuple(dict.fromkeys(filter(None, told)))

    @property
    def passed(self) -> tuple[str, ...]:
        return tuple(t.task.id for t in self.tasks if t.verdict is Verdict.PASSED)

    @property
    def is_complete(self) -> bool:
        return self.passed == tuple(task.id for task in self.lab.tasks)


def to_json(test: TestResult) -> dict[str, Any]:
    """As it travels from the worker; `from_json` reads it."""
    return {**asdict(test), "verdict": test.verdict.value}


def from_json(table: dict[str, Any]) -> TestResult:
    explanation = table["explanation"]
    if explanation is not None:
        explanation = Explanation(**{**explanation, "script": tuple(explanation["script"])})
    again = None if table["again"] is None else Again(**table["again"])
    told = {"verdict": Verdict(table["verdict"]), "explanation": explanation, "again": again}
    return TestResult(**{**table, **told})
