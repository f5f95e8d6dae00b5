"""What a lab's workers tell: an account of its tests, kept within bounds and held to the plan.

A worker's process runs the part as well, which may write to the same channel. A part that means to can
claim to have passed; what it cannot do is break the grading, or have it take memory without end.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from grader.verdict import (
    BUSY_WHY,
    MOST_CHARACTERS,
    Explanation,
    TestResult,
    Verdict,
    clipped,
    explanation_from,
    from_json,
)
from yaie.curriculum.manifest import Lab

MOST_TESTS = 2_000
"""Of a lab; the largest suite has a tenth."""
MOST_SAID = 500
"""Characters of the last line that a worker printed before it ended."""


@dataclass(slots=True)
class Account:
    """What the workers of one lab have told so far, as far as it can be true.

    planned: (name, task, claim) of every test. at: (name, task) of what runs; the names "start",
    "import", "compile" and "collect" have no task. lack: what this machine does not have.
    """

    planned: list[tuple[str, str, str]] = field(default_factory=list)
    results: dict[str, TestResult] = field(default_factory=dict)
    at: tuple[str, str] = ("start", "")
    broken: Explanation | None = None
    lack: str = ""
    why: str = ""
    on_result: Callable[["Account"], None] = lambda account: None

    def take(self, event: dict[str, Any]) -> None:
        """An event of the worker; see `worker.py` and `recorder.py`."""
        match event["event"]:
            case "plan":
                self._plan(event["tests"])
            case "test":
                self.at = (str(event["name"]), str(event["task"]))
            case "result":
                self._add(from_json(event["test"]))
            case "left out":
                self._leave_out(str(event["name"]))
            case "broken":
                self.broken = explanation_from(event["explanation"])
            case "lack":
                self.lack = clipped(str(event["sentence"]), MOST_CHARACTERS)

    def _add(self, result: TestResult) -> None:
        """Of a test that was planned. A second word on it counts if it is worse: a teardown may fail."""
        if (result.name, result.task) not in self._planned_tasks:
            raise ValueError(f"no such test: {result.name}")
        before = self.results.get(result.name)
        if before is not None and before.verdict is not Verdict.PASSED:
            return
        if before is None and result.task in self._over:
            return
        self.results[result.name] = result
        if before is None:
            self.on_result(self)

    def _leave_out(self, name: str) -> None:
        """A test that asks for all tasks, where one has not passed: it is not needed any more."""
        if self._over:
            self.planned = [test for test in self.planned if test[0] != name]

    def _plan(self, tests: list[Any]) -> None:
        """The first plan counts. Raises TypeError or ValueError for what is none."""
        if self.planned:
            return
        planned = [(name, task, claim) for name, task, claim in tests[:MOST_TESTS]]
        if not all(isinstance(text, str) for test in planned for text in test):
            raise TypeError("a plan is a list of names, tasks and claims")
        self.planned = [
            (name, task, clipped(claim, MOST_CHARACTERS)) for name, task, claim in planned
        ]

    @property
    def _planned_tasks(self) -> set[tuple[str, str]]:
        return {(name, task) for name, task, _ in self.planned}

    @property
    def _over(self) -> set[str]:
        """Tasks that a test has settled."""
        return {r.task for r in self.results.values() if r.verdict is not Verdict.PASSED}

    @property
    def open_tests(self) -> list[tuple[str, str, str]]:
        """Planned tests without a result, but for those of a task that one has settled already."""
        over = self._over
        return [
            test for test in self.planned if test[0] not in self.results and test[1] not in over
        ]

    @property
    def is_over(self) -> bool:
        return self.broken is not None or bool(self.planned and not self.open_tests)

    def settle(self, name: str, task: str, verdict: Verdict, problem: str, **more: Any) -> None:
        """A result that no worker could send."""
        claim = next((claim for planned, _, claim in self.planned if planned == name), "")
        explanation = Explanation(claim, problem, **more).bounded()
        self.results[name] = TestResult(name, task, verdict, explanation=explanation)

    def leave_open(self, lab: Lab, lack: str) -> None:
        """Nothing of this lab can be verified on this machine."""
        self.planned = [
            (f"task {task.id}", task.id, "This machine can grade it.") for task in lab.tasks
        ]
        for name, task, _ in self.planned:
            self.settle(name, task, Verdict.NOT_VERIFIED, lack)

    def bury(self, death: str, where: str, output: str) -> None:
        """The worker died at a test, or before the first."""
        name, task = self.at
        why = self.why if "still running" in death else ""
        if (name, task) in self._planned_tasks and name not in self.results:
            self.settle(name, task, Verdict.FAILED, death, where=where, why=why)
        elif name == "import":
            self.broken = Explanation("The part can be imported.", death, where=where, why=why)
        elif name == "compile" and self.planned:
            pass  # Triton's compiler, on a machine that is too busy: what is left is not verified
        elif name == "compile":
            self.broken = Explanation("The part compiles.", death)
        elif not task:
            said = output.strip().splitlines()[-1:]
            problem = clipped(f"{death} {' '.join(said)}".strip(), MOST_SAID)
            busy = BUSY_WHY if why else ""
            self.broken = Explanation("The grader can start.", problem, where=where, why=busy)
