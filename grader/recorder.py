"""The pytest plugin that turns tests into results, one line of JSON each.

It hands the part to the tests (fixture `part`), keeps every test within its time, and explains
failures. Runs in the worker's process; what it emits is read by `runner.py`.
"""

import os
import re
import signal
import time
from collections.abc import Callable, Collection, Generator
from dataclasses import asdict
from types import FrameType, ModuleType
from typing import Any

import pytest
from hypothesis.errors import Flaky

from grader.kit.expect import Fault, Mismatch
from grader.kit.generate import LATER_SHRINK_SECONDS, allow_shrinking
from grader.kit.script import current_script, start_script
from grader.submission import STUB, Submission, locate, place, told
from grader.surroundings import Surroundings
from grader.verdict import Explanation, TestResult, Verdict, to_json

Emit = Callable[[dict[str, Any]], None]

AGAIN_SECONDS = 0.5
"""A part that swallows the alarm gets another one after this long."""


class TookTooLong(BaseException):
    """A test's time is over. Not an Exception, so that few handlers swallow it."""


class Recorder:
    """tasks: the ids to grade, all if empty. done: names of tests to leave out."""

    def __init__(
        self,
        submission: Submission,
        part: ModuleType,
        emit: Emit,
        *,
        tasks: Collection[str] = (),
        done: Collection[str] = (),
        test_seconds: float = 10.0,
        surroundings: Surroundings | None = None,
    ) -> None:
        self._submission = submission
        self._part = part
        self._emit = emit
        self._tasks = tasks
        self._done = done
        self._test_seconds = test_seconds
        self._surroundings = surroundings or Surroundings()
        self._pid = os.getpid()
        self._is_timed = False
        self._over: set[str] = set()  # tasks with a test that did not pass

    @pytest.fixture(scope="session")
    def part(self) -> ModuleType:
        """The package under test."""
        return self._part

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """In the order of the tasks, and of the file in each; what is not asked for is left out."""
        items[:] = [
            item
            for item in items
            if item.nodeid not in self._done and (not self._tasks or task_of(item) in self._tasks)
        ]
        items.sort(key=lambda item: int(task_of(item).partition(".")[2]))
        planned = [(item.nodeid, task_of(item), claim_of(item)) for item in items]
        self._emit({"event": "plan", "tests": planned})

    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        if task_of(item) not in self._over:
            self._emit({"event": "test", "name": item.nodeid, "task": task_of(item)})
            start_script()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, None]:
        """A task is over at its first test that does not pass: one reason is enough to start with."""
        if task_of(item) in self._over:
            pytest.skip("its task is over")
        yield from self._phase(item, is_call=False)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, None]:
        yield from self._phase(item, is_call=True)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, Any, None]:
        yield from self._phase(item, is_call=False)

    def _phase(self, item: pytest.Item, is_call: bool) -> Generator[None, Any, None]:
        """Run one phase of a test within its time, and send what came of it.

        A setup or a teardown is worth a word only if it fails.
        """
        began = time.perf_counter()
        error: BaseException | None = None
        try:
            self._set_alarm()
            try:
                yield
            finally:
                self._stop_alarm()
        except BaseException as raised:  # noqa: BLE001, a part may raise anything
            error = raised
        self._stop_alarm()  # once more: the alarm may have come while it was stopped
        if os.getpid() != self._pid:
            os._exit(0)  # the part forked, and this is the copy
        self._surroundings.restore()
        if is_call or error is not None:
            self._send(item, self._result(item, error, time.perf_counter() - began))

    def _send(self, item: pytest.Item, result: TestResult) -> None:
        self._emit({"event": "result", "test": to_json(result)})
        if result.verdict is Verdict.PASSED:
            return
        self._over.add(result.task)
        if result.verdict is Verdict.FAILED:
            # The report explains the first failure in full, and has a line for each other task.
            allow_shrinking(LATER_SHRINK_SECONDS)
        pytest.fail(result.verdict.value, pytrace=False)

    def _set_alarm(self) -> None:
        def too_long(signum: int, frame: FrameType | None) -> None:
            if self._is_timed:
                raise TookTooLong

        self._is_timed = True
        signal.signal(signal.SIGALRM, too_long)
        signal.setitimer(signal.ITIMER_REAL, self._test_seconds, AGAIN_SECONDS)

    def _stop_alarm(self) -> None:
        self._is_timed = False
        signal.setitimer(signal.ITIMER_REAL, 0)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A suite that cannot be imported is no fault of the part."""
        if report.failed:
            self._emit_broken(str(report.longrepr))

    def pytest_internalerror(self, excrepr: object) -> None:
        self._emit_broken(str(excrepr))

    def _emit_broken(self, text: str) -> None:
        lines = [line.removeprefix("E").strip() for line in text.strip().splitlines()]
        explanation = Explanation(
            "The grader works.", f"It does not, whatever the part is like: {lines[-1]}"
        )
        self._emit({"event": "broken", "explanation": asdict(explanation)})

    def _result(self, item: pytest.Item, error: BaseException | None, seconds: float) -> TestResult:
        verdict, waits_for, explanation = Verdict.PASSED, "", None
        if isinstance(error, pytest.skip.Exception):
            verdict = Verdict.NOT_VERIFIED
            explanation = Explanation(claim_of(item), str(error))
        elif (stub := _stub_in(error)) is not None:
            verdict, waits_for = Verdict.NOT_IMPLEMENTED, stub["task"]
            explanation = Explanation(claim_of(item), stub.string)
        elif error is not None:
            verdict = Verdict.FAILED
            explanation = explain(error, claim_of(item), self._submission, self._test_seconds)
        return TestResult(
            item.nodeid, task_of(item), verdict, round(seconds, 4), waits_for, explanation
        )


def task_of(item: pytest.Item) -> str:
    marker = item.get_closest_marker("task")
    assert marker is not None, f"{item.nodeid} grades no task: mark it with @task"
    return str(marker.args[0])


def claim_of(item: pytest.Item) -> str:
    """The docstring of a test, on one line."""
    return " ".join((getattr(item, "obj", None).__doc__ or item.name).split())


def unwrapped(error: BaseException) -> BaseException:
    """Triton's interpreter wraps what a kernel raises, once for each call inside it."""
    while type(error).__name__ == "InterpreterError" and error.__cause__ is not None:
        error = error.__cause__
    return error


def _plain(error: BaseException, submission: Submission) -> BaseException:
    """A fault of a CUDA kernel as a failure with file and line; any other error as it is."""
    if type(error).__name__ != "KernelFault":
        return error
    from grader.kit.cuda_watch import KernelFault, as_fault

    if not isinstance(error, KernelFault):
        return error
    where = ""
    if error.file is not None and submission.owns(str(error.file)):
        where = place(submission, str(error.file), error.line, error.kernel)
    return as_fault(error, where)


def _stub_in(error: BaseException | None) -> "re.Match[str] | None":
    """What a stub has raised, taken apart; None for anything else."""
    inner = None if error is None else unwrapped(error)
    return STUB.match(str(inner)) if isinstance(inner, NotImplementedError) else None


def explain(
    error: BaseException, claim: str, submission: Submission, seconds: float
) -> Explanation:
    """A failure in words: what was checked, what happened, the calls before it, and where."""
    error = _plain(unwrapped(error), submission)
    script = current_script()
    common: dict[str, Any] = {
        "claim": claim,
        "script": script.quoted(),
        "before": script.before,
        "after": script.after,
        "where": locate(error, submission),
    }
    match error:
        case Mismatch():
            common["where"] = (error.where or common["where"]) if isinstance(error, Fault) else ""
            common["claim"] = error.claim or claim
            return Explanation(
                problem=error.problem,
                expected=error.expected,
                got=error.got,
                why=error.why,
                **common,
            )
        case TookTooLong():
            problem = f"It was still running after {seconds:g} seconds."
            why = "A loop that never ends, or work that grows much faster than its input."
            return Explanation(problem=problem, why=why, **common)
        case MemoryError():
            return Explanation(problem="It ran out of memory.", **common)
        case RuntimeError() if "allocate memory" in told(error):
            return Explanation(problem="It ran out of memory.", **common)
        case RecursionError():
            return Explanation(problem="It called itself without end (RecursionError).", **common)
        case SystemExit():
            return Explanation(problem="It ended the program (sys.exit).", **common)
        case Flaky():
            problem = "The same calls, made again, had another outcome."
            why = "Something random, or state that is shared between objects, decides."
            return Explanation(problem=problem, why=why, **common)
    if common["where"]:
        return Explanation(problem=told(error), **common)
    if isinstance(error, AttributeError) and (missing := missing_name(error, submission)):
        why = "yaie/core/contracts lists what a part must have."
        return Explanation(problem=missing, why=why, **common)
    return Explanation(problem=f"What it returned cannot be used: {told(error)}", **common)


def missing_name(error: AttributeError, submission: Submission) -> str:
    """What the grader wanted of the part, or of an object of its classes, in vain; "" if it did not."""
    owner = error.obj if isinstance(error.obj, ModuleType | type) else type(error.obj)
    home = owner.__name__ if isinstance(owner, ModuleType) else owner.__module__
    if not error.name or not f"{home}.".startswith(f"labs.{submission.lab.key}."):
        return ""
    return f"{owner.__name__} has no {error.name}."
