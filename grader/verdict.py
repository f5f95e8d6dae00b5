"""What grading finds out: for a test, a task, a lab. Plain data that goes through JSON unchanged."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, TypeVar

from yaie.core.compat import StrEnum
from yaie.curriculum.manifest import Lab, Task

MOST_CHARACTERS = 8_000
"""Of each text of an explanation."""
MOST_LINES, MOST_IN_LINE = 80, 1_000
"""Lines of a script, and characters of each."""
WORD = 40
"""Characters of the word on what was left out."""
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

    def bounded(self) -> "Explanation":
        """With the beginning of what is too long, and how much was left out: an error's message or an
        object's state may be of any length."""
        texts = {
            one.name: clipped(getattr(self, one.name), MOST_CHARACTERS)
            for one in fields(self)
            if one.name not in ("script", "is_program")
        }
        script = tuple(clipped(line, MOST_IN_LINE) for line in self.script[:MOST_LINES])
        if len(self.script) > MOST_LINES:
            left = len(self.script) - MOST_LINES + 1
            script = (*script[:-1], f"... {left} lines left out ...")
        is_program = self.is_program and script == self.script
        return replace(self, **texts, script=script, is_program=is_program)

    def as_table(self) -> dict[str, Any]:
        """As it travels from the worker; `explanation_from` reads it."""
        return asdict(self.bounded())


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
    output: the end of what was printed; output_cut: bytes before it that were left out. told_cut:
    bytes on the channel for results that were none.
    invalid: a sentence, if it is no grade, because the files that were graded were changed.
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
    output_cut: int = 0
    told_cut: int = 0
    invalid: str = ""
    replay: tuple[str, ...] = ()
    no_replay: str = ""
    unkept: str = ""

    @property
    def points(self) -> int:
        """None if the result is no grade, whatever its tasks have earned."""
        return 0 if self.invalid else sum(task.points for task in self.tasks)

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
    why = None if test.explanation is None else test.explanation.as_table()
    return {**asdict(test), "verdict": test.verdict.value, "explanation": why}


def from_json(table: dict[str, Any]) -> TestResult:
    """Raises KeyError, TypeError or ValueError for what is no result: the part may write one, too."""
    why, again = table["explanation"], table["again"]
    seconds = float(table["seconds"])
    if not math.isfinite(seconds):
        raise ValueError("seconds must be a number")
    told = {
        "verdict": Verdict(table["verdict"]),
        "seconds": seconds,
        "explanation": None if why is None else explanation_from(why),
        "again": None if again is None else _typed(Again(**again)),
    }
    return _typed(TestResult(**{**table, **told}))


def explanation_from(table: dict[str, Any]) -> Explanation:
    """Raises TypeError for what is none."""
    if not isinstance(table["script"], list | tuple):
        raise TypeError("a script is a list of lines")
    explanation = _typed(Explanation(**{**table, "script": tuple(table["script"])}))
    if not all(isinstance(line, str) for line in explanation.script):
        raise TypeError("a script is a list of lines")
    return explanation.bounded()


def clipped(text: str, most: int) -> str:
    """The beginning of a text and a word on what was left out, together at most `most` characters."""
    if len(text) <= most:
        return text
    kept = most - WORD
    return f"{text[:kept]} ... {len(text) - kept:,} characters left out"


T = TypeVar("T", Explanation, Again, TestResult)


def _typed(value: T) -> T:
    """Raises TypeError if a field that is a text or a number holds something else."""
    for one in fields(value):
        kind = {"str": str, "int": int, "bool": bool}.get(
            str(getattr(one.type, "__name__", one.type))
        )
        if kind is not None and not isinstance(getattr(value, one.name), kind):
            raise TypeError(f"{one.name} must be a {kind.__name__}")
    return value
