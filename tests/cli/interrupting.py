"""Runs a command and presses Ctrl-C at a moment, as a terminal does: for its whole process group."""

import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]
MARK = "INTERRUPT_TEST"
SECONDS = 2.0
"""Within which a command ends on an idle machine, beside ROOM."""
ROOM = 3.0
PATIENCE = 30.0
"""Seconds after which a command that has not ended is killed: that one hangs."""


@dataclass(frozen=True)
class Ended:
    """status: None if it had ended before. said: what it printed after the signal. left: the command
    lines of processes that were still there."""

    status: int | None
    seconds: float
    said: str
    left: list[str]

    @property
    def is_pythons_own(self) -> bool:
        """Whether the interpreter had not come to the command yet: its own start ends in a traceback."""
        ours = ("yaie/cli", "grader/cli")
        is_python = self.status == -signal.SIGINT or "Traceback" in self.said
        return is_python and not any(name in self.said for name in ours)


class Running:
    """A command that was started."""

    def __init__(self, command: Sequence[str], **environment: str) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as this object)
        self._token = secrets.token_hex(8)
        self.process = subprocess.Popen(
            list(command),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": str(ROOT), MARK: self._token, **environment},
            start_new_session=True,
        )

    @property
    def output(self) -> str:
        return os.pread(self._output.fileno(), 1 << 20, 0).decode("utf-8", "replace")

    def wait_until(self, condition: Callable[[], bool], seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while not condition() and self.process.poll() is None:
            assert time.monotonic() < deadline, self.output
            time.sleep(0.02)

    def interrupt(self) -> Ended:
        """Press Ctrl-C now, and look at what becomes of it."""
        before, status = len(self.output), None
        begin = time.monotonic()
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGINT)
            try:
                status = self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                status = -signal.SIGKILL
                self.process.kill()
        seconds = time.monotonic() - begin
        return Ended(status, seconds, self.output[before:], self._left())

    def _left(self) -> list[str]:
        """Killed, and told. One that has just been killed by its parent has a moment to go."""
        deadline = time.monotonic() + 1
        while (found := self._family()) and time.monotonic() < deadline:
            time.sleep(0.05)
        for process in found:
            process.kill()
        return [" ".join(process.cmdline()) for process in found]

    def _family(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            try:
                ours = process.environ().get(MARK) == self._token
                if ours and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found


def yaie(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "yaie", *arguments]


def grader(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "grader", *arguments]


def expect_end(ended: Ended, answer: str = "", within: float = PATIENCE) -> None:
    """Status 130, in one line, with nothing left, within so many seconds (how soon is for a night to
    say: what other tests do beside may take any time). answer: how what it prints begins, if it may have
    begun to."""
    if ended.status is None:
        return
    assert ended.status == 130, ended
    assert ended.seconds < within, ended
    lines = [line for line in ended.said.splitlines() if line]  # a progress bar leaves an empty one
    if answer and lines and lines[0].startswith(answer):
        lines = lines[-1:]
    assert lines in ([], ["Stopped."]), ended
    assert ended.left == [], ended


def pressed_after(delay: float, command: Sequence[str], **environment: str) -> Ended:
    running = Running(command, **environment)
    time.sleep(delay)
    return running.interrupt()
