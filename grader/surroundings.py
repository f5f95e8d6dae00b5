"""What a part may disturb in the process that it shares with the other tests, put back after each.

A part that changes folder, deletes its temporary files, closes stdout or sets torch's default dtype has
done so for itself only.
"""

import gc
import os
import sys
import tempfile
from contextlib import suppress
from typing import Any

STREAMS = (1, 2)
PYTESTS_OWN = "PYTEST_CURRENT_TEST"
"""pytest sets this variable before a test and removes it afterwards: it must be there then."""


class Surroundings:
    """The process as it is now; `restore` makes it so again."""

    def __init__(self) -> None:
        self._folders = (os.getcwd(), tempfile.gettempdir())
        self._environment = dict(os.environ)
        self._recursion_limit = sys.getrecursionlimit()
        self._kept: dict[int, int] = {}
        for stream in STREAMS:
            with suppress(OSError):
                self._kept[stream] = os.dup(stream)

    def restore(self) -> None:
        self._restore_folders()
        self._restore_environment()
        self._restore_streams()
        sys.setrecursionlimit(self._recursion_limit)
        sys.settrace(None)
        sys.setprofile(None)
        gc.enable()
        with suppress(Exception):  # torch may have been stopped half-way through its import
            _restore_torch()

    def _restore_folders(self) -> None:
        with suppress(OSError):
            for folder in self._folders:
                os.makedirs(folder, exist_ok=True)
            # Not only if it differs: a folder that was deleted and made again is another one.
            os.chdir(self._folders[0])

    def _restore_environment(self) -> None:
        for name in os.environ.keys() - self._environment.keys() - {PYTESTS_OWN}:
            del os.environ[name]
        os.environ.update(self._environment)
        os.environ.setdefault(PYTESTS_OWN, "")

    def _restore_streams(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # whatever the part has put there
                stream.flush()
        for stream, kept in self._kept.items():
            with suppress(OSError):
                os.dup2(kept, stream)
        sys.stdout = _open_again(sys.__stdout__, 1)
        sys.stderr = _open_again(sys.__stderr__, 2)


def _open_again(original: Any, stream: int) -> Any:
    """The stream that the interpreter started with, or a new one if that was closed."""
    if original is not None and not original.closed:
        return original
    return open(stream, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)


def _restore_torch() -> None:
    """The settings that torch starts with, in a process with OMP_NUM_THREADS=1."""
    if torch := sys.modules.get("torch"):
        torch.set_default_dtype(torch.float32)
        torch.set_grad_enabled(True)
        if torch.get_num_threads() != 1:
            torch.set_num_threads(1)
