"""The pytest plugin that turns tests into results, one line of JSON each.

It hands the part to the tests (fixture `part`), keeps every test within its time, and explains
failures (`explain.py`). Runs in the worker's process; what it emits is read by `runner.py`.
"""

import gc
import os
import re
import signal
import time
from collections.abc import Callable, Collection, Generator
from dataclasses import replace
from types import FrameType, ModuleType
from typing import Any

import pytest

from grader.compiling import compile_others
from grader.explain import TookTooLong, explain, how_to_fail_again
from grader.explain import stub_in as _stub_in
from grader.fair_clock import FairClock, with_children
from grader.kit.axes import forget_launches, wrong_axes
from grader.kit.generate import LATER_SHRINK_SECONDS, allow_shrinking
from grader.kit.kept import Memory, with_cause
from grader.kit.program import as_program
from grader.kit.script import MOST_LINES, current_script, start_script
from grader.kit.session import SESSION
from grader.machine import CUDA, why_too_long
from grader.submission import Submission
from grader.surroundings import Surroundings
from grader.verdict import Explanation, TestResult, Verdict, to_json
from yaie.curriculum.manifest import ROOT

Emit = Callable[[dict[str, Any]], None]

AXES_SECONDS = 2.0
"""For running a failed test with other axes of a launch grid."""
AXES_SECONDS_IN_ALL = 6.0
"""For that in all tests together: a part that fails in every task is not kept waiting."""
KEPT_SECONDS, KEPT_SECONDS_IN_ALL = 3.0, 6.0
"""For running a failed test without what the part's modules keep, where they keep anything."""
PROGRAM_SECONDS = 2.0
"""For carrying out the calls of a failure once more."""
AGAIN_SECONDS = 0.5
"""A part that swallows the alarm gets another one after this long."""
LATE = re.compile("growth|long_run")
"""In the names of files whose tests come last in a task."""
LEAST_LEFT = 0.05
"""Seconds between two looks at what is left of a test's time."""


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
        self._has_failed = False
        self._axes_seconds = AXES_SECONDS_IN_ALL
        self._kept_seconds = KEPT_SECONDS_IN_ALL
        self._memory = Memory(part)
        self._over: set[str] = set()  # tasks with a test that did not pass

    @pytest.fixture(scope="session")
    def part(self) -> ModuleType:
        """The package under test."""
        return self._part

    @pytest.fixture(scope="session")
    def submission(self) -> Submission:
        """Where its files lie."""
        return self._submission

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """In the order of the tasks, and of the file in each, except that growth and the long run come
        last: other tests say more plainly what is wrong. At the very end comes the engine on the whole
        part, as a test of the last task. What is not asked for is left out."""
        for item in filter(is_whole, items):
            item.add_marker(pytest.mark.task(self._submission.lab.tasks[-1].id))
        items[:] = [
            item
            for item in items
            if item.nodeid not in self._done
            and (not self._tasks or task_of(item) in self._tasks)
            # A worker that goes on where another one died does not know what has failed.
            and not (is_whole(item) and (self._tasks or self._done))
        ]
        items.sort(
            key=lambda item: (
                int(task_of(item).partition(".")[2]),
                bool(LATE.search(item.path.name)),
                is_whole(item),
            )
        )
        planned = [(item.nodeid, task_of(item), claim_of(item)) for item in items]
        self._emit({"event": "plan", "tests": planned})

    def pytest_collection_finish(self) -> None:
        """What has been imported stays: looking for garbage in it again and again takes a tenth of a
        grading."""
        gc.collect()
        gc.freeze()
        gc.enable()

    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        if task_of(item) not in self._over:
            if item.get_closest_marker("compiles"):
                self._await_compiler()
            if is_whole(item) and not self._over:
                self._compile_others()
            self._emit({"event": "test", "name": item.nodeid, "task": task_of(item)})
            SESSION.searches, SESSION.is_searching, SESSION.left_open = 0, False, ""
            start_script(is_example=True)
            forget_launches()

    def _await_compiler(self) -> None:
        """Before the test's time begins: a machine that is busy takes long to start another process."""
        from grader.kit import compiled

        self._emit({"event": "test", "name": "compile", "task": ""})
        compiled.wait(self._submission)

    def _compile_others(self) -> None:
        """Before the time of the engine's test begins: it runs on the reference's other parts."""
        if CUDA in self._submission.lab.verify:
            self._emit({"event": "test", "name": "compile", "task": ""})
            compile_others(self._submission.lab)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, None]:
        """A task is over at its first test that does not pass: one reason is enough to start with."""
        if task_of(item) in self._over:
            pytest.skip("its task is over")
        if is_whole(item) and self._over:
            self._emit({"event": "left out", "name": item.nodeid})
            pytest.skip("another task has not passed")
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

    def _set_alarm(self, seconds: float = 0.0) -> None:
        """seconds: other than those of a test."""

        def too_long(signum: int, frame: FrameType | None) -> None:
            if not self._is_timed:
                return
            clock.look()
            if (left := limit - clock.used) > 0:  # others had the processor
                signal.setitimer(signal.ITIMER_REAL, max(left, LEAST_LEFT), AGAIN_SECONDS)
                return
            computed = time.process_time() - began
            raise TookTooLong(why_too_long(clock.used, computed, clock.is_starved))

        limit = seconds or self._test_seconds
        began, clock = time.process_time(), FairClock(with_children)
        self._is_timed = True
        signal.signal(signal.SIGALRM, too_long)
        signal.setitimer(signal.ITIMER_REAL, limit, AGAIN_SECONDS)

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
        self._emit({"event": "broken", "explanation": explanation.as_table()})

    def _result(self, item: pytest.Item, error: BaseException | None, seconds: float) -> TestResult:
        verdict, waits_for, explanation, again = Verdict.PASSED, "", None, None
        if isinstance(error, pytest.skip.Exception):
            verdict = Verdict.NOT_VERIFIED
            explanation = Explanation(claim_of(item), str(error))
        elif (stub := _stub_in(error)) is not None:
            verdict, waits_for = Verdict.NOT_IMPLEMENTED, stub["task"]
            explanation = Explanation(claim_of(item), stub.string)
        elif error is not None:
            verdict = Verdict.FAILED
            explanation = explain(error, claim_of(item), self._submission, self._test_seconds)
            explanation = self._with_program(explanation, seconds)
            again = how_to_fail_again(error)
            explanation = self._with_axes(item, explanation, seconds)
            explanation = self._with_memory(item, explanation, seconds)
        seconds = round(seconds, 4)
        return TestResult(
            item.nodeid,
            task_of(item),
            verdict,
            seconds,
            waits_for,
            explanation,
            again,
            SESSION.left_open,
        )

    def _with_program(self, explanation: Explanation, seconds: float) -> Explanation:
        """The calls of the first failure as a program, if they make one: it is the one that a report
        tells in full. seconds: that the test has taken."""
        is_first = not self._has_failed
        self._has_failed = True
        script = current_script().lines
        enough = seconds + PROGRAM_SECONDS < self._test_seconds
        if not (is_first and enough and self._is_learners and 0 < len(script) <= MOST_LINES):
            return explanation
        program = None
        try:
            self._set_alarm(PROGRAM_SECONDS)
            program = as_program(script, self._part)
        except BaseException:  # noqa: BLE001, a part may raise anything, and the alarm does
            return explanation
        finally:
            self._stop_alarm()
            self._surroundings.restore()
        return replace(explanation, script=program, is_program=True) if program else explanation

    def _with_axes(self, item: pytest.Item, told: Explanation, seconds: float) -> Explanation:
        """With advice on the axes of a launch grid, if they are what is wrong, in place of what the test
        says of other mistakes."""
        began = time.perf_counter()
        left = min(AXES_SECONDS, self._axes_seconds)
        advice = self._advice(item, wrong_axes, seconds, left)
        self._axes_seconds -= time.perf_counter() - began
        return replace(told, claim=claim_of(item), why=advice) if advice else told

    def _with_memory(self, item: pytest.Item, told: Explanation, seconds: float) -> Explanation:
        """With the variable that keeps values between calls, if they are what is wrong."""
        began = time.perf_counter()
        left = min(KEPT_SECONDS, self._kept_seconds)
        cause = self._advice(item, self._memory.cause_of, seconds, left)
        self._kept_seconds -= time.perf_counter() - began
        return replace(told, why=with_cause(told.why, cause)) if cause else told

    def _advice(
        self,
        item: pytest.Item,
        find: Callable[[Callable[[], object]], str],
        seconds: float,
        left: float,
    ) -> str:
        """What `find` says of a failed test that it may run again, "" if it is not asked. A search would
        be made anew, and is not. seconds: that the test has taken; left: for this."""
        enough = left > 0 and seconds + left < self._test_seconds
        if not (enough and isinstance(item, pytest.Function)) or SESSION.searches:
            return ""
        names = item._fixtureinfo.argnames
        if not item.funcargs.keys() >= set(names):  # it failed before it began
            return ""
        arguments = {name: item.funcargs[name] for name in names}
        try:
            self._set_alarm(left)
            return find(lambda: item.obj(**arguments))
        except BaseException:  # noqa: BLE001, a part may raise anything, and the alarm does
            return ""
        finally:
            self._stop_alarm()
            self._surroundings.restore()

    @property
    def _is_learners(self) -> bool:
        """Whether a program that imports the part by its name gets this one, and runs it as it was
        graded: a kernel takes settings that an interpreter does not have."""
        lab = self._submission.lab
        return self._submission.folder == ROOT / "labs" / lab.key and not lab.is_kernel


def task_of(item: pytest.Item) -> str:
    marker = item.get_closest_marker("task")
    assert marker is not None, f"{item.nodeid} grades no task: mark it with @task"
    return str(marker.args[0])


def is_whole(item: pytest.Item) -> bool:
    """Whether a test asks for all tasks of a lab."""
    return item.get_closest_marker("whole") is not None


def claim_of(item: pytest.Item) -> str:
    """The docstring of a test, on one line."""
    return " ".join((getattr(item, "obj", None).__doc__ or item.name).split())
