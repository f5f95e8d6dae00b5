"""Every process that a worker has started: found even where it hides, and ended with the worker.

A process can leave its parent's group, its session, and the environment that it was given. Three things
tell of it even so: the session that it left (a process can only begin a new one), a mark in the
environment that it began with, and, on Linux, that a process whose parent has ended becomes a child of
the grader: no other process of ours has a session that we did not start.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import psutil

MARK = "YAIE_GRADING"
"""An environment variable by which children are found that have left session and group."""
PR_SET_CHILD_SUBREAPER = 36
ROUNDS = 20
"""One that is killed may have started another meanwhile."""

_lock = threading.Lock()
_living: dict[int, str] = {}
"""Workers of this process, with their marks."""


class Family:
    """Of one worker. token: the value of its MARK. Made before the worker; `end` it in any case."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._began = time.time()
        self._pid = 0
        with _lock:
            if not _living:
                _adopt_orphans(True)
            _living[-id(self)] = token

    def start(self, begin: Callable[[], "subprocess.Popen[bytes]"]) -> "subprocess.Popen[bytes]":
        """Start the worker, in a session of its own. Until it is known, no cleanup looks for orphans: it
        would be taken for one."""
        with _lock:
            process = begin()
            self._pid = process.pid
            _living[process.pid] = _living.pop(-id(self))
        return process

    def kill_group(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, signal.SIGKILL)

    def end(self) -> None:
        """Kill the processes that remain of it. The worker itself has ended."""
        try:
            for _ in range(ROUNDS):
                if not self._pid or not (left := self._members()):
                    break
                for process in left:
                    with suppress(psutil.Error):
                        process.kill()
                psutil.wait_procs(left, timeout=0.5)
        finally:
            with _lock:
                _living.pop(self._pid or -id(self), None)
                if not _living:
                    _adopt_orphans(False)

    def _members(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter(["create_time"]):
            with suppress(psutil.Error, OSError):
                # Only the young ones: reading an environment is slow.
                if (process.info["create_time"] or 0) < self._began - 1:
                    continue
                if process.pid != self._pid and self._is_member(process):
                    found.append(process)
        return found

    def _is_member(self, process: psutil.Process) -> bool:
        with _lock:
            if process.pid in _living:
                return False
            session = os.getsid(process.pid)
            is_orphan = process.ppid() == os.getpid() and session not in (os.getsid(0), *_living)
            if process.status() == psutil.STATUS_ZOMBIE:
                return is_orphan  # to be waited for; another's are that one's
            if session == self._pid:
                return True
            mark = _mark_of(process)
            return mark == self._token or (is_orphan and mark not in _living.values())


def _mark_of(process: psutil.Process) -> str:
    try:
        return process.environ().get(MARK, "")
    except (psutil.Error, OSError):
        return ""


def _adopt_orphans(wanted: bool) -> None:
    """A process whose parent ends becomes a child of this one, and not of the system's first."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0)


def tasks_of_user() -> int:
    """Processes and threads that this user has now, as far as they can be seen."""
    total = 0
    for process in psutil.process_iter(["uids", "num_threads"]):
        uids = process.info["uids"]
        if uids is not None and uids.real == os.getuid():
            total += process.info["num_threads"] or 1
    return total
