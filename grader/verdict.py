"""What grading finds out: for a test, a task, a lab. Plain data that goes through JSON unchanged."""

from dataclasses import asdict, dataclass, field
from typing import Any

from yaie.core.compat import StrEnum
from yaie.curriculum.manifest import Lab, Task


class Verdict(StrEnum):
    """NOT_IMPLEMENTED is a stub that is still one; NOT_VERIFIED needs what this machine lacks."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_IMPLEMENTED = "not implemented yet"
    NOT_VERIFIED = "not verified here"


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a test did not pass, in the order in which a person wants to read it.

    claim: what must hold. problem: what happened instead. script: the calls that led there.
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


@dataclass(frozen=True, slots=True)
class TestResult:
    """One test of a suite. waits_for: the task whose stub it ran into."""

    __test__ = False  # not for pytest to collect

    name: str
    task: str
    verdict: Verdict
    seconds: float = 0.0
    waits_for: str = ""
    explanation: Explanation | None = None


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

    only: the tasks that were asked for, all if empty. digest: of the graded source, "" if it changed
    meanwhile. problem: why nothing could be graded (a file that is not Python, a missing folder).
    """

    lab: Lab
    tasks: tuple[TaskResult, ...]
    digest: str = ""
    seconds: float = 0.0
    problem: Explanation | None = None
    only: tuple[str, ...] = ()
    output: str = field(default="", repr=False)

    @property
    def points(self) -> int:
        return sum(task.points for task in self.tasks)

    @property
    def max_points(self) -> int:
        """Of the tasks that were asked for."""
        return sum(task.task.points for task in self.tasks)

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
    return TestResult(**{**table, "verdict": Verdict(table["verdict"]), "explanation": explanation})
