"""Grades many submissions of one lab in copies of one warm process.

    FROM_THE_START LAB JOBS PARENT    orders on stdin, answers on stdout, a line of JSON each

Starting Python, importing torch and collecting a suite costs more than grading most mutants. So this
process does that once, and forks a copy for each order. `Farm` is the other end, in the caller.
"""

import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

import pytest

from grader.compiling import compile_part, compiled_references
from grader.kit.session import SESSION
from grader.machine import CUDA, environment
from grader.recorder import Emit, Recorder, is_whole, task_of
from grader.selfcheck.forking import Done, run_forked
from grader.submission import Submission, explain_import, load
from grader.verdict import TestResult, from_json
from grader.worker import Order, grade, run_suite
from yaie.curriculum.manifest import ROOT, Lab, load_curriculum
from yaie.system.child import end_with

EXTRA_ADDRESS_SPACE = 3 * 2**30
FROM_THE_START = (
    "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    "from grader.selfcheck.farm import main; main()"
)
"""Ctrl-C is the caller's, with whom the process ends: also while it imports."""


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
        # What is compiled here is of no use to anybody afterwards; what all need is compiled once.
        self._cache = tempfile.TemporaryDirectory(prefix="yaie-farm-")
        if CUDA in load_curriculum()[lab].verify:
            copy_to(Path(self._cache.name) / "cuda" / "cpu", compiled_references())
        ours = {
            "YAIE_CACHE": self._cache.name,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "OMP_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "PYTHONPATH": str(ROOT),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-c", FROM_THE_START, lab, str(jobs), str(os.getpid())],
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


def copy_to(folder: Path, files: Iterable[Path]) -> None:
    """One of a name is copied once."""
    folder.mkdir(parents=True)
    for file in set(files):
        shutil.copy2(file, folder)


def main() -> None:
    end_with(int(sys.argv[3]))
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
            for done in run_forked(orders, self._jobs, self._work, EXTRA_ADDRESS_SPACE):
                self._answers.write(json.dumps(_answer(done)) + "\n")
        return True

    def _work(self, job: Job, emit: Emit, slot: int) -> None:
        def tell(event: dict[str, Any]) -> None:
            if event["event"] in ("result", "broken"):
                emit(event)

        signal.signal(signal.SIGINT, signal.default_int_handler)
        self.grade(job, tell)

    def grade(self, job: Job, emit: Emit) -> None:
        """Grade one submission; only once in a process."""
        submission = Submission(self._lab, Path(job.folder), Path(job.folder))
        try:
            part = load(submission)
        except BaseException as error:  # noqa: BLE001, a part may raise anything
            emit({"event": "broken", "explanation": explain_import(error, submission).as_table()})
            return
        if complaint := compile_part(submission):
            emit({"event": "broken", "explanation": complaint.as_table()})
            return
        SESSION.seed = job.seed
        for tasks, SESSION.effort in job.stages:
            Recorder.__init__(
                self, submission, part, emit, tasks=tasks, test_seconds=job.test_seconds
            )
            items = [
                item
                for item in self._items
                if not tasks or (task_of(item) in tasks and not is_whole(item))
            ]
            for item, following in zip(items, [*items[1:], None], strict=True):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if job.exit_first and self._over:
                    return


def _answer(done: Done) -> dict[str, Any]:
    tests = [event["test"] for event in done.events if event["event"] == "result"]
    broken = [
        event["explanation"]["problem"] for event in done.events if event["event"] == "broken"
    ]
    problem = f"cannot be graded: {broken[-1]}" if broken else done.problem
    return {"id": done.order.id, "tests": tests, "problem": problem, "seconds": done.seconds}
