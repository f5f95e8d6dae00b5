"""Whether a Triton part's kernels compile for a GPU: found out by another process, beside the suite.

    start(submission)                     when grading begins: it takes as long as the first tests do
    wait(submission)                      before the last test of a task, on no test's time
    expect_compiles(submission, "9.1")    that test: nothing of the task's code is refused

`grader/triton_compiler.py` is that process. Where it cannot say, because Triton cannot compile here or
another task is still open, the check holds and the report says what is not verified.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from typing import Any

import pytest

from grader.kit.expect import Fault
from grader.kit.session import SESSION
from grader.machine import INTERPRETED
from grader.places import open_places
from grader.submission import Submission, place

WAIT_SECONDS = 30.0
"""It takes about 2. Where it takes this long, the machine is busy, and the part is not to blame."""
LAST_WORDS = 200
MOST_BYTES = 2**22
"""Of what the process has written, that are read; a launch takes less than a thousandth."""


@dataclass(slots=True)
class _Running:
    """The process for one part. told, said: its output and its error output. launches: those that it has
    told of, None as long as it runs. unknown: why these are not all."""

    folder: str
    order: InitVar[dict[str, Any]]
    told: Any = field(default_factory=tempfile.TemporaryFile)
    said: Any = field(default_factory=tempfile.TemporaryFile)
    process: "subprocess.Popen[bytes]" = field(init=False)
    launches: list[dict[str, Any]] | None = None
    unknown: str = ""

    def __post_init__(self, order: dict[str, Any]) -> None:
        theirs = order | {"fd": self.told.fileno()}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "grader.triton_compiler", json.dumps(theirs)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self.said,
            pass_fds=[self.told.fileno()],
            env={name: value for name, value in os.environ.items() if name not in INTERPRETED},
        )

    def wait(self) -> None:
        """Until it has ended, and taken down what it has told."""
        if self.launches is not None:
            return
        try:
            self.process.wait(WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            self.unknown = f"Triton has not compiled them within {WAIT_SECONDS:g} seconds"
        told = [launch for line in _lines(self.told) if (launch := _launch(line))]
        self.launches = [launch for launch in told if not launch["is_begun"]]
        code = self.process.returncode
        if code and not self.unknown:
            last = _lines(self.said)[-1:]
            self.unknown = " ".join(["Triton cannot compile here:", *last])[:LAST_WORDS].strip()
            if code < 0 and told and told[-1]["is_begun"]:
                crash = f"Triton's compiler crashes on {told[-1]['kernel']}, which the interpreter runs."
                self.launches.append({**told[-1], "problem": crash})
                self.unknown = f"Triton's compiler has crashed on {told[-1]['kernel']}"


def _launch(line: str) -> dict[str, Any] | None:
    """None for a line that was cut short, or is another's."""
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return told if isinstance(told, dict) and "is_begun" in told else None


def _lines(file: Any) -> list[str]:
    """Of its last MOST_BYTES: the part runs in that process, too, and may write without end."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - MOST_BYTES))
    text: str = file.read(MOST_BYTES).decode("utf-8", "replace")
    return text.splitlines(keepends=True)


_running: _Running | None = None


def start(submission: Submission, **limits: int) -> None:
    """Begin to compile what is written of the lab. All of it: one task's launch may be the only one that
    reaches a line of another's. limits: fields of the worker's `Order`."""
    global _running
    still_open = open_places(submission)
    tasks = [task.id for task in submission.lab.tasks if task.id not in still_open]
    if tasks:
        folder, shown_from = str(submission.folder), str(submission.shown_from)
        order = {
            "lab": submission.lab.key,
            "folder": folder,
            "shown_from": shown_from,
            "tasks": tasks,
        }
        _running = _Running(folder, {**order, **limits})


def wait(submission: Submission) -> None:
    """Until all is compiled; begin with it, if `start` has not."""
    if SESSION.effort < 1:
        return  # a mistake of another task is looked for: what compiles here is not in question
    if _running is None or _running.folder != str(submission.folder):
        start(submission)
    if _running is not None:
        _running.wait()


def expect_compiles(submission: Submission, task: str) -> None:
    """Nothing that is written for the task is refused by the compiler."""
    if _running is None or _running.launches is None:
        return
    for launch in _running.launches:
        if launch["blame"] == task:
            where = ""
            if launch["file"]:
                where = place(submission, launch["file"], launch["line"], launch["function"])
            raise Fault(launch["problem"], why=launch["why"], where=where)
    own = [launch for launch in _running.launches if launch["task"] == task]
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
        "id", [pytest.param(id, marks=[pytest.mark.task(id), pytest.mark.compiles]) for id in ids]
    )
