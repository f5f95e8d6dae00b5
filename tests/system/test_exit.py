"""The end of a process that does not wait for what hangs."""

import os
import subprocess
import sys
from typing import NoReturn

import pytest

from yaie.system import interrupt

PROGRAM = (
    "import atexit, sys; from yaie.system.exit import exit_now; atexit.register(print, 'registered');"
    "print('written', end=' '); exit_now({})"
)


@pytest.mark.parametrize(("code", "out"), [(0, "written registered\n"), (3, "written ")])
def test_what_was_printed_is_written_and_what_was_registered_runs_after_success(
    code: int, out: str
) -> None:
    program = [sys.executable, "-c", PROGRAM.format(code)]
    ran = subprocess.run(program, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (code, out, "")


class Ended(BaseException):
    """Instead of the end of this process."""


def test_an_interrupted_process_leaves_no_child_behind(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    killed = []

    class Child:
        def kill(self) -> None:
            killed.append(self)

    class Process:
        children = (Child(), Child())

        @staticmethod
        def active_children() -> tuple[Child, ...]:
            return Process.children

    def end(status: int) -> NoReturn:
        raise Ended(status)

    monkeypatch.setitem(sys.modules, "multiprocessing.process", Process)  # type: ignore[misc]
    monkeypatch.setattr(os, "_exit", end)
    with pytest.raises(Ended, match="130"):
        interrupt.end_interrupted()
    assert killed == [*Process.children]
    assert capfd.readouterr().err == "Stopped.\n"
