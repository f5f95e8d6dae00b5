"""A worker's process: started, watched, and put to an end together with everything that it started."""

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from grader.channel import KEPT_OUTPUT, MOST_TOLD, Heard, keep_tail, read_events
from grader.family import MARK, Family, tasks_of_user
from grader.machine import environment
from grader.room import environment_in
from grader.snapshot import Copy
from grader.submission import Submission, copied
from grader.worker import LOST_CHANNEL, Order
from yaie.curriculum.manifest import ROOT, load_curriculum

MOST_PROCESSES = 32
SPARE_TASKS = 512
"""Processes and threads that this user may have beyond those of now. Other programs start some, too: a
limit that keeps a part to MOST_PROCESSES would fail it for what a browser does."""
FAMILY_SECONDS = 0.25
"""Looking for children costs more than a look at one process, so it happens less often."""
TRACE_SECONDS = 2.0
LAST_LINES = (b" in _run_module_as_main\n", b"  ...\n")
"""Of a trace's last thread, the main one, which runs a module; one that is very deep is cut."""
GIB = 2**30
TABLES = Path(".yaie/unicode")
"""What Hypothesis works out about Unicode, which takes seconds: for the next worker, where nothing but
the learner's own part runs."""
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)


class WorkerProcess:
    """Use as a context manager; afterwards nothing of it is left, and `output` is complete.

    submission: what is graded; one that was kept is written to a folder of this worker's, and then
    `submission` is that copy. room: its home, see `room_for`. take: called from a thread for every event
    that the worker sends. program: the module that is run. changed: the name of a file that is not what
    it was before, once all is over.
    """

    def __init__(
        self,
        order: Order,
        take: Callable[[dict[str, Any]], None],
        submission: Submission,
        room: Path | None = None,
        program: str = "grader.worker",
    ) -> None:
        self._program = program
        self.submission = submission
        self.changed = ""
        self._copy: Copy | None = None
        self._room = room
        self._order = order
        self._take = take
        self._tail = bytearray()
        self.heard = Heard()
        self._readers: list[threading.Thread] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._looked = 0.0
        self._children: list[psutil.Process] = []
        self._lifeline: socket.socket | None = None

    def __enter__(self) -> "WorkerProcess":
        self._traces = tempfile.TemporaryFile()  # first: what fails after it leaves no folder
        self._scratch = Path(tempfile.mkdtemp(prefix="yaie-grade-")).resolve()
        self._family = Family(token := secrets.token_hex(8))
        try:
            self._start(token)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self, token: str) -> None:
        temporary = self._scratch / "tmp"  # the part may delete that one
        temporary.mkdir()
        if self._room is None:
            _keep_tables(temporary)
        if self.submission.kept is not None:
            self.submission, self._copy = copied(self.submission, self._scratch / "part")
            self._order.folder = str(self.submission.folder)
            self._order.shown_from = str(self.submission.shown_from)
        # No pipe: another process of this user could open a pipe in /proc, and write results into it.
        events, theirs = socket.socketpair()
        self._order.fd = theirs.detach()
        self._lifeline, lifeline = socket.socketpair()
        self._order.lifeline = lifeline.detach()
        self._order.traces = self._traces.fileno()
        self._order.most_tasks = tasks_of_user() + SPARE_TASKS
        passed = (self._order.fd, self._order.lifeline)
        try:
            self._process = self._family.start(
                lambda: subprocess.Popen(
                    [sys.executable, "-m", self._program, json.dumps(asdict(self._order))],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    cwd=temporary,
                    env=self._environment(token, temporary),
                    pass_fds=[*passed, self._order.traces],
                    start_new_session=True,
                )
            )
        except BaseException:
            events.close()
            raise
        finally:
            for fd in passed:
                os.close(fd)
        assert self._process.stdout is not None
        self._read(read_events, events, self._take, self.heard)
        self._read(keep_tail, self._process.stdout, self._tail, self.heard)

    def __exit__(self, *error: object) -> None:
        if self._process is not None:
            self._family.kill_group()
            self._process.wait()
        self._family.end()
        for reader in self._readers:
            reader.join(timeout=1)  # whoever escaped even so may hold the pipe open for ever
        if self._lifeline is not None:
            self._lifeline.close()
        self._traces.close()
        if self._copy is not None:
            self.changed = self._copy.changed()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _environment(self, token: str, temporary: Path) -> dict[str, str]:
        ours = {
            "TMPDIR": str(temporary),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": str(ROOT),
            "TOKENIZERS_PARALLELISM": "false",
            # Each arena maps 64 MiB that count against the limit without being used.
            "MALLOC_ARENA_MAX": "2",
            MARK: token,
        }
        theirs = dict(os.environ) if self._room is None else environment_in(self._room)
        theirs.pop("PYTEST_ADDOPTS", None)
        return theirs | ONE_THREAD | ours | environment(load_curriculum()[self._order.lab])

    def _read(self, target: Callable[..., None], *args: Any) -> None:
        reader = threading.Thread(target=target, args=args, daemon=True)
        reader.start()
        self._readers.append(reader)

    @property
    def output(self) -> bytes:
        """The end of what was printed."""
        return bytes(self._tail)

    def wait(self, seconds: float) -> bool:
        """Whether the worker has ended, after at most this long."""
        assert self._process is not None
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self._process.returncode is not None

    def computed(self) -> float:
        """Seconds of processor time that it has taken, its children not counted."""
        assert self._process is not None
        with suppress(psutil.Error):
            times = psutil.Process(self._process.pid).cpu_times()
            return float(times.user + times.system)
        return 0.0

    def pids(self) -> list[int]:
        """Of the worker and its children, as they were at the last look for these."""
        assert self._process is not None
        return [self._process.pid, *(child.pid for child in self._children)]

    def excess(self, memory_gib: float) -> str:
        """What it takes too much of, "" if nothing."""
        assert self._process is not None
        if self.heard.told > MOST_TOLD:
            return (
                f"It wrote more than {MOST_TOLD // 2**20} MiB to the grader's channel for results."
            )
        with suppress(psutil.Error):
            worker = psutil.Process(self._process.pid)
            total = worker.memory_info().rss
            if total <= memory_gib * GIB and time.monotonic() - self._looked > FAMILY_SECONDS:
                self._looked = time.monotonic()
                self._children = worker.children(recursive=True)
                if len(self._children) > MOST_PROCESSES:
                    return f"It started more than {MOST_PROCESSES} processes."
                if self._children:
                    total = sum(map(_own_bytes, [worker, *self._children]))
            if total > memory_gib * GIB:
                return f"It took more than {memory_gib:g} GiB of memory."
        return ""

    def trace(self, ask: bool = False) -> str:
        """Where it crashed; ask: where it is. As Python's faulthandler tells it, "" if unknown."""
        assert self._process is not None
        if ask and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGUSR1)
                self._wait_for_trace(self._trace_size())
        size = self._trace_size()
        return os.pread(self._traces.fileno(), min(size, KEPT_OUTPUT), 0).decode("utf-8", "replace")

    def _trace_size(self) -> int:
        return os.fstat(self._traces.fileno()).st_size

    def _wait_for_trace(self, before: int) -> None:
        """Until it is written: at once, or when a busy machine comes to it, line by line."""
        deadline = time.monotonic() + TRACE_SECONDS
        while time.monotonic() < deadline:
            time.sleep(0.05)
            size = self._trace_size()
            end = os.pread(self._traces.fileno(), size - before, before)
            if end.endswith(LAST_LINES):
                return

    def end(self) -> str:
        """How it ended, in words."""
        assert self._process is not None
        code = self._process.returncode
        if code == -signal.SIGKILL:
            return "Someone killed it (SIGKILL), most likely the system for want of memory."
        if code < 0:
            return f"It crashed the interpreter ({_signal_name(-code)})."
        if code == LOST_CHANNEL:
            return "It closed file descriptors that are not its own."
        return f"It ended the whole process (exit status {code})."


def _own_bytes(process: psutil.Process) -> int:
    """Of pages that processes share, as those that fork do, each has its part."""
    with suppress(psutil.Error):
        told = process.memory_full_info()
        return int(getattr(told, "pss", told.rss))  # Linux alone tells the parts
    return 0


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _keep_tables(folder: Path) -> None:
    """Let Hypothesis, which a worker runs in this folder, find and leave its tables in TABLES. Where
    that cannot be made, each worker makes its own."""
    with suppress(OSError):
        (ROOT / TABLES).mkdir(parents=True, exist_ok=True)
        (folder / ".hypothesis").mkdir()
        (folder / ".hypothesis" / "unicode_data").symlink_to(
            ROOT / TABLES, target_is_directory=True
        )
