"""Grades many submissions of one lab in copies of one warm process.

    python -m grader.selfcheck.farm LAB JOBS    orders on stdin, answers on stdout, a line of JSON each

Starting Python, importing torch and collecting a suite costs more than grading most mutants. So this
process does that once, and forks a copy for each order. `Farm` is the other end, in the caller.
"""

import gc
import json
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

import pytest

from grader.compiling import compile_part
from grader.kit.session import SESSION
from grader.machine import environment
from grader.recorder import Emit, Recorder, task_of
from grader.submission import Submission, explain_import, load
from grader.verdict import TestResult, from_json
from grader.worker import Order, grade, run_suite
from yaie.curriculum.manifest import ROOT, Lab, load_curriculum

EXTRA_ADDRESS_SPACE = 3 * 2**30
DEVNULL = os.open(os.devnull, os.O_RDWR)


@dataclass(slots=True)
class Job:
    """One submission. stages: lists of tasks to grade one after the other, each with its effort; with
    exit_first the first test that does not pass ends it. seconds: for all of it."""

    id: str
    folder: str
    stages: list[tuple[list[str], float]] = field(default_factory=lambda: [([], 1.0)])
    exit_first: bool = False
    test_seconds: float = 10.0
    seconds: float = 60.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """tests: results in order. problem: why there are none or not all ("" if all is well)."""

    id: str
    tests: tuple[TestResult, ...]
    problem: str
    seconds: float


class Farm:
    """A warm process for one lab. Use as a context manager."""

    def __init__(self, lab: str, jobs: int) -> None:
        # What is compiled here is of no use to anybody afterwards.
        self._cache = tempfile.TemporaryDirectory(prefix="yaie-farm-")
        ours = {
            "YAIE_CACHE": self._cache.name,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "OMP_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "PYTHONPATH": str(ROOT),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "grader.selfcheck.farm", lab, str(jobs)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | ours | environment(load_curriculum()[lab]),
            text=True,
        )

    def __enter__(self) -> "Farm":
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait()
        self._cache.cleanup()

    def run(self, jobs: Iterable[Job]) -> Iterator[Outcome]:
        """Outcomes in the order in which they are there."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        lines = [json.dumps(asdict(job)) for job in jobs]
        self._process.stdin.write(json.dumps(len(lines)) + "\n" + "\n".join(lines) + "\n")
        self._process.stdin.flush()
        for _ in lines:
            answer = self._process.stdout.readline()
            if not answer:
                raise RuntimeError("the farm's process has ended; its error output says why")
            table = json.loads(answer)
            tests = tuple(from_json(test) for test in table["tests"])
            yield Outcome(table["id"], tests, table["problem"], table["seconds"])


@dataclass(slots=True)
class _Child:
    job: Job
    pid: int
    pipe: int
    began: float
    received: bytearray = field(default_factory=bytearray)


def main() -> None:
    lab, jobs = load_curriculum()[sys.argv[1]], int(sys.argv[2])
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a suite prints is not an answer
    SESSION.shrink = False
    # Grade the reference once, on few examples: whatever the suite imports, it has imported then.
    SESSION.effort = 0.0
    grade(Order(lab.key, str(ROOT / "solutions" / lab.key), str(ROOT), fd=-1), lambda event: None)
    SESSION.effort = 1.0
    run_suite(lab.key, _Suite(lab, jobs, answers))


class _Suite(Recorder):
    """A lab's suite, collected once by pytest; where its tests would run, it serves orders instead."""

    def __init__(self, lab: Lab, jobs: int, answers: TextIO) -> None:
        super().__init__(Submission(lab, ROOT), ModuleType("none yet"), lambda event: None)
        self._lab = lab
        self._jobs = jobs
        self._answers = answers

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._items = session.items
        gc.collect()
        gc.freeze()  # or collecting garbage in a copy would copy every page that Python has
        while count := sys.stdin.readline():
            orders = [Job(**json.loads(sys.stdin.readline())) for _ in range(json.loads(count))]
            for answer in _run_all(self, orders, self._jobs):
                self._answers.write(json.dumps(answer) + "\n")
        return True

    def grade(self, job: Job, emit: Emit) -> None:
        """Grade one submission; only once in a process."""
        submission = Submission(self._lab, Path(job.folder), Path(job.folder))
        try:
            part = load(submission)
        except BaseException as error:  # noqa: BLE001, a part may raise anything
            emit({"event": "broken", "explanation": asdict(explain_import(error, submission))})
            return
        if complaint := compile_part(submission):
            emit({"event": "broken", "explanation": asdict(complaint)})
            return
        SESSION.seed = job.seed
        for tasks, SESSION.effort in job.stages:
            Recorder.__init__(
                self, submission, part, emit, tasks=tasks, test_seconds=job.test_seconds
            )
            items = [item for item in self._items if not tasks or task_of(item) in tasks]
            for item, following in zip(items, [*items[1:], None], strict=True):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if job.exit_first and self._over:
                    return


def _run_all(suite: _Suite, orders: list[Job], jobs: int) -> Iterator[dict[str, Any]]:
    """At most `jobs` children at once."""
    waiting = list(reversed(orders))
    children: dict[int, _Child] = {}
    while waiting or children:
        while waiting and len(children) < jobs:
            child = _start(suite, waiting.pop())
            children[child.pipe] = child
        ready, _, _ = select.select(list(children), [], [], 0.2)
        for pipe in ready:
            if data := os.read(pipe, 65_536):
                children[pipe].received += data
            else:
                yield _reap(children.pop(pipe))
        for child in list(children.values()):
            if time.monotonic() - child.began > child.job.seconds:
                _kill(child.pid)
                yield _reap(children.pop(child.pipe), "out of time")


def _start(suite: _Suite, job: Job) -> _Child:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        try:
            _grade_in_child(suite, job, writing)
        finally:
            os._exit(0)
    os.close(writing)
    return _Child(job, pid, reading, time.monotonic())


def _grade_in_child(suite: _Suite, job: Job, pipe: int) -> None:
    os.setsid()
    for stream in (0, 1, 2):
        os.dup2(DEVNULL, stream)
    _limit_address_space()

    def emit(event: dict[str, Any]) -> None:
        if event["event"] in ("result", "broken"):
            os.write(pipe, json.dumps(event).encode() + b"\n")

    suite.grade(job, emit)
    os.write(pipe, b'{"event": "end"}\n')


def _limit_address_space() -> None:
    """What this process has mapped already, and some more."""
    with open("/proc/self/statm") as statm:
        mapped = int(statm.read().split()[0]) * resource.getpagesize()
    limit = mapped + EXTRA_ADDRESS_SPACE
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _reap(child: _Child, problem: str = "") -> dict[str, Any]:
    _kill(child.pid)
    os.waitpid(child.pid, 0)
    os.close(child.pipe)
    tests, ended = [], False
    for line in bytes(child.received).splitlines():
        try:
            event = json.loads(line)
        except ValueError:  # cut short by the end of its writer
            continue
        match event["event"]:
            case "result":
                tests.append(event["test"])
            case "broken":
                problem = f"cannot be graded: {event['explanation']['problem']}"
            case "end":
                ended = True
    if not ended and not problem:
        problem = "the process died"
    seconds = round(time.monotonic() - child.began, 3)
    return {"id": child.job.id, "tests": tests, "problem": problem, "seconds": seconds}


def _kill(pid: int) -> None:
    """The child and whatever it has started; it may be gone already."""
    for kill in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
