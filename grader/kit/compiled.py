"""Whether a Triton part's kernels compile for a GPU: found out by another process, beside the suite.

    start(order, submission)             when grading begins: it takes as long as the first tests do
    expect_compiles(submission, "9.1")   the last check of a task: nothing of its code is refused

`grader/triton_compiler.py` is that process. Where it cannot say, because Triton cannot compile here or
another task is still open, the check holds and the report says what is not verified.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import InitVar, asdict, dataclass, field, replace
from typing import Any

import pytest

from grader.kit.expect import Fault
from grader.kit.session import SESSION
from grader.machine import INTERPRETED
from grader.places import open_places
from grader.submission import Submission, place
from grader.worker import Order

WAIT_SECONDS = 8.0
"""Less than a test has: whoever compiles slowly is not at fault."""
LAST_WORDS = 200


@dataclass(slots=True)
class _Running:
    """The process for one part. told: its launches; said: its error output. unknown: why it has not told
    of all."""

    folder: str
    order: InitVar[Order]
    told: Any = field(default_factory=tempfile.TemporaryFile)
    said: Any = field(default_factory=tempfile.TemporaryFile)
    process: "subprocess.Popen[bytes]" = field(init=False)
    unknown: str = ""

    def __post_init__(self, order: Order) -> None:
        theirs = replace(order, fd=self.told.fileno())
        self.process = subprocess.Popen(
            [sys.executable, "-m", "grader.triton_compiler", json.dumps(asdict(theirs))],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self.said,
            pass_fds=[theirs.fd],
            env={name: value for name, value in os.environ.items() if name not in INTERPRETED},
        )

    def launches(self) -> list[dict[str, Any]]:
        """What it has told, when it has ended."""
        try:
            self.process.wait(WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            self.unknown = f"Triton has not compiled them within {WAIT_SECONDS:g} seconds"
        told = [json.loads(line) for line in _lines(self.told) if line.endswith("\n")]
        launches = [launch for launch in told if not launch["is_begun"]]
        code = self.process.returncode
        if code and not self.unknown:
            last = _lines(self.said)[-1:]
            self.unknown = " ".join(["Triton cannot compile here:", *last])[:LAST_WORDS].strip()
            if code < 0 and told and told[-1]["is_begun"]:
                crash = f"Triton's compiler crashes on {told[-1]['kernel']}, which the interpreter runs."
                launches.append({**told[-1], "problem": crash})
                self.unknown = f"Triton's compiler has crashed on {told[-1]['kernel']}"
        return launches


def _lines(file: Any) -> list[str]:
    file.seek(0)
    text: str = file.read().decode("utf-8", "replace")
    return text.splitlines(keepends=True)


_running: _Running | None = None


def start(order: Order, submission: Submission) -> None:
    """Begin to compile what is written of the order's tasks, all of the lab's if it names none."""
    global _running
    still_open = open_places(submission)
    wanted = order.tasks or [task.id for task in submission.lab.tasks]
    if tasks := [task for task in wanted if task not in still_open]:
        _running = _Running(order.folder, replace(order, tasks=tasks))


def expect_compiles(submission: Submission, task: str) -> None:
    """Nothing that is written for the task is refused by the compiler."""
    if SESSION.effort < 1:
        return  # a mistake of another task is looked for: what compiles there is not in question
    folder = str(submission.folder)
    if _running is None or _running.folder != folder:
        start(Order(submission.lab.key, folder, str(submission.shown_from), fd=-1), submission)
    if _running is None:
        return
    launches = _running.launches()
    for launch in launches:
        if launch["blame"] == task:
            where = ""
            if launch["file"]:
                where = place(submission, launch["file"], launch["line"], launch["function"])
            raise Fault(launch["problem"], why=launch["why"], where=where)
    own = [launch for launch in launches if launch["task"] == task]
    if not own and _running.unknown:
        SESSION.left_open = f"whether the kernels compile for a GPU: {_running.unknown}"
    for launch in own:
        other = f"it waits for task {launch['blame']}" if launch["blame"] else launch["unknown"]
        if other:
            kernel = launch["kernel"] or f"what task {task} launches"
            SESSION.left_open = f"whether {kernel} compiles for a GPU: {other}"


def for_tasks(*ids: str) -> Callable[[Any], Any]:
    """A test that is one test of each of these tasks, which it gets as `id`."""
    return pytest.mark.parametrize(
        "id", [pytest.param(id, marks=pytest.mark.task(id)) for id in ids]
    )
