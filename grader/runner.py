"""Grades labs, each in a process of its own, and survives whatever a part does there.

A part may loop, crash, exit, fork, print without end or eat memory: the worker dies at its limits, the
test it was at gets that verdict, and another worker goes on with the tests that are left.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from grader.machine import what_is_missing, why_too_long
from grader.places import open_places
from grader.process import GIB, KEPT_OUTPUT, WorkerProcess
from grader.submission import Submission, locate_in_trace
from grader.verdict import (
    BUSY_WHY,
    Explanation,
    LabResult,
    TaskResult,
    TestResult,
    Verdict,
    from_json,
)
from grader.worker import SUITES, Order
from yaie.core.files import reason
from yaie.curriculum.manifest import Lab
from yaie.curriculum.progress import part_digest

POLL_SECONDS = 0.05
GRACE_SECONDS = 1.5
"""After its time a test is interrupted; after this much more, deaf to that, the worker is killed."""
COMPILERS_GIB = 6.0


@dataclass(frozen=True, slots=True)
class Limits:
    """seconds: for a lab, from start to end. test_seconds: for one test. import_seconds: for the part's
    import. memory_gib: of the worker with all its children, Python and torch included."""

    seconds: float = 60.0
    test_seconds: float = 10.0
    memory_gib: float = 2.0
    import_seconds: float = 20.0


Told = Callable[[Submission, int, int], None]
"""(submission, tests done, tests planned), whenever one is done. Called from any thread."""


@dataclass(slots=True)
class _Session:
    """What the workers of one lab have told so far. planned: (name, task, claim) of every test.

    at: (name, task) of what runs; the names "start", "import", "compile" and "collect" have no task.
    since: when it began. lack: what this machine does not have.
    """

    planned: list[tuple[str, str, str]] = field(default_factory=list)
    results: dict[str, TestResult] = field(default_factory=dict)
    at: tuple[str, str] = ("start", "")
    since: float = field(default_factory=time.monotonic)
    broken: Explanation | None = None
    lack: str = ""
    why: str = ""
    on_result: Callable[["_Session"], None] = lambda session: None

    def take(self, event: dict[str, Any]) -> None:
        """An event of the worker; see `worker.py` and `recorder.py`."""
        match event["event"]:
            case "plan":
                self.planned = self.planned or [tuple(test) for test in event["tests"]]
            case "test":
                self.at, self.since = (event["name"], event["task"]), time.monotonic()
            case "result":
                result = from_json(event["test"])
                self.results[result.name] = result
                self.on_result(self)
            case "broken":
                explanation = event["explanation"]
                script = tuple(explanation["script"])
                self.broken = Explanation(**{**explanation, "script": script})
            case "lack":
                self.lack = event["sentence"]

    @property
    def open_tests(self) -> list[tuple[str, str, str]]:
        """Planned tests without a result, but for those of a task that one has settled already."""
        over = {r.task for r in self.results.values() if r.verdict is not Verdict.PASSED}
        return [
            test for test in self.planned if test[0] not in self.results and test[1] not in over
        ]

    @property
    def is_over(self) -> bool:
        return self.broken is not None or bool(self.planned and not self.open_tests)

    def settle(self, name: str, task: str, verdict: Verdict, problem: str, **more: Any) -> None:
        """A result that no worker could send."""
        claim = next((claim for planned, _, claim in self.planned if planned == name), "")
        explanation = Explanation(claim, problem, **more)
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
        if task and name not in self.results:
            self.settle(name, task, Verdict.FAILED, death, where=where, why=why)
        elif name == "import":
            self.broken = Explanation("The part can be imported.", death, where=where, why=why)
        elif name == "compile" and self.planned:
            pass  # Triton's compiler, on a machine that is too busy: what is left is not verified
        elif name == "compile":
            self.broken = Explanation("The part compiles.", death)
        elif not task:
            said = output.strip().splitlines()[-1:]
            problem = f"{death} {' '.join(said)}".strip()
            busy = BUSY_WHY if why else ""
            self.broken = Explanation("The grader can start.", problem, where=where, why=busy)


def grade_labs(
    submissions: Sequence[Submission],
    *,
    tasks: Sequence[str] = (),
    seed: int = 0,
    limits: Limits = Limits(),
    jobs: int | None = None,
    on_done: Callable[[LabResult], None] = lambda result: None,
    on_test: Told = lambda submission, done, planned: None,
) -> list[LabResult]:
    """Grade several labs, `jobs` at once (by default as many as there are cores), in their order.

    When one cannot be graded at all, for whatever reason, its result says so; the others go on.
    """
    stop = threading.Event()

    def one(submission: Submission) -> LabResult:
        try:
            result = grade_lab(
                submission, tasks=tasks, seed=seed, limits=limits, stop=stop, on_test=on_test
            )
        except Exception as error:  # noqa: BLE001, a folder may be unreadable in many ways
            problem = Explanation("The lab can be graded.", f"{type(error).__name__}: {error}")
            result = _lab_result(submission, _Session(broken=problem), tasks)
        on_done(result)
        return result

    with ThreadPoolExecutor(min(jobs or num_cores(), max(len(submissions), 1))) as pool:
        futures = [pool.submit(one, submission) for submission in submissions]
        try:
            return [future.result() for future in futures]
        except BaseException:
            stop.set()  # every worker is killed at its next poll, before the pool closes
            pool.shutdown(cancel_futures=True)
            raise


def num_cores() -> int:
    """Cores that this process may use: fewer than there are, in many a container."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def has_suite(lab: str) -> bool:
    return any((SUITES / lab).glob("test_*.py"))


def grade_lab(
    submission: Submission,
    *,
    tasks: Sequence[str] = (),
    seed: int = 0,
    limits: Limits = Limits(),
    shrink: bool = True,
    effort: float = 1.0,
    stop: threading.Event | None = None,
    on_test: Told = lambda submission, done, planned: None,
) -> LabResult:
    """Grade one lab. tasks: ids to grade, all if empty. effort: multiplies the number of generated
    examples. stop: give up as soon as it is set."""
    began = time.monotonic()
    stop = stop or threading.Event()
    session = _Session(
        on_result=lambda told: on_test(submission, len(told.results), len(told.planned))
    )
    if not has_suite(submission.lab.key):
        problem = f"There are no tests for lab {submission.lab.key} yet."
        session.broken = Explanation("The lab has a grader.", problem)
    elif lack := what_is_missing(submission.lab):
        session.leave_open(submission.lab, lack)
    digest = part_digest(submission.folder)
    output = b""
    while not session.is_over and not stop.is_set():
        left = limits.seconds - (time.monotonic() - began)
        if left <= 0:
            break
        known, session.at, session.since = len(session.results), ("start", ""), time.monotonic()
        order = _order(submission, session, tasks, limits, left)
        order.seed, order.shrink, order.effort = seed, shrink, effort
        try:
            with WorkerProcess(order, session.take) as worker:
                death = _watch(worker, session, left, limits, stop)
                where = locate_in_trace(worker.trace(ask=True), submission) if death else ""
                death = death or worker.end()
                where = where or locate_in_trace(worker.trace(), submission)
        except OSError as error:  # a full disk, say: the part has done nothing wrong
            session.lack = f"The grader could not start: {reason(error)}."
        if session.lack:
            session.leave_open(submission.lab, session.lack)
            break
        output = (output + worker.output)[-KEPT_OUTPUT:]
        if stop.is_set() or session.is_over:
            break
        session.bury(death, where, worker.output.decode("utf-8", "replace"))
        if time.monotonic() - began >= limits.seconds:
            break
        if len(session.results) == known and not session.is_over:
            name, task, _ = session.open_tests[0]  # or the next worker would do no better
            session.settle(name, task, Verdict.FAILED, death, where=where)
    _note_what_was_not_reached(session, limits)
    # What was saved while it was graded is anybody's guess: such a result vouches for no source.
    digest = digest if part_digest(submission.folder) == digest else ""
    seconds = round(time.monotonic() - began, 2)
    return _lab_result(submission, session, tasks, digest, seconds, output)


def _order(
    submission: Submission, session: _Session, tasks: Sequence[str], limits: Limits, left: float
) -> Order:
    still_open = {name for name, _, _ in session.open_tests}
    return Order(
        lab=submission.lab.key,
        folder=str(submission.folder),
        shown_from=str(submission.shown_from),
        fd=-1,
        tasks=list(tasks),
        done=[name for name, _, _ in session.planned if name not in still_open],
        test_seconds=min(limits.test_seconds, left),
        memory_bytes=int(limits.memory_gib * GIB) if sys.platform == "linux" else 0,
        cpu_seconds=int(2 * limits.seconds) + 10,
    )


def _watch(
    worker: WorkerProcess, session: _Session, left: float, limits: Limits, stop: threading.Event
) -> str:
    """Wait for the worker's end. Returns why it must be ended, "" if it has done so itself."""
    deadline = time.monotonic() + left
    at, before = session.at, worker.computed()
    while not worker.wait(POLL_SECONDS):
        now = time.monotonic()
        if session.at != at:
            at, before = session.at, worker.computed()
        patience = _patience(session, limits)
        if stop.is_set():
            return "It was stopped."
        if now > deadline or now - session.since > patience:
            session.why = why_too_long(now - session.since, worker.computed() - before)
        if now > deadline:
            return f"It was still running when the lab's {limits.seconds:g} seconds were over."
        if now - session.since > patience:
            return f"It was still running after {patience - GRACE_SECONDS:g} seconds."
        if excess := worker.excess(_allowed_gib(session, limits)):
            return excess
    return ""


def _allowed_gib(session: _Session, limits: Limits) -> float:
    """Compilers run several at once, and are not the part."""
    return limits.memory_gib + (COMPILERS_GIB if session.at[0] == "compile" else 0)


def _patience(session: _Session, limits: Limits) -> float:
    """How long what runs now may take. The grader's own start is bounded by the lab's time only."""
    name, task = session.at
    if task:
        return limits.test_seconds + GRACE_SECONDS
    return limits.import_seconds + GRACE_SECONDS if name == "import" else limits.seconds


def _note_what_was_not_reached(session: _Session, limits: Limits) -> None:
    seconds = f"the lab's {limits.seconds:g} seconds were used up"
    if session.broken is None and not session.planned:
        session.broken = Explanation("The grader can start.", f"It did not: {seconds}.")
    for name, task, _ in session.open_tests:
        session.settle(name, task, Verdict.NOT_VERIFIED, f"Not reached: {seconds}.")


def _lab_result(
    submission: Submission,
    session: _Session,
    only: Sequence[str],
    digest: str = "",
    seconds: float = 0.0,
    output: bytes = b"",
) -> LabResult:
    wanted = [task for task in submission.lab.tasks if not only or task.id in only]
    results = [
        TaskResult(task, tuple(r for r in session.results.values() if r.task == task.id))
        for task in wanted
    ]
    return LabResult(
        lab=submission.lab,
        tasks=tuple(results),
        digest=digest,
        seconds=seconds,
        problem=session.broken,
        only=tuple(only),
        open_places=open_places(submission),
        output=output.decode("utf-8", "replace"),
    )
