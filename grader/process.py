"""A worker's process: started, watched, and put to an end together with everything that it started."""

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import IO, Any

import psutil

from grader.machine import environment
from grader.worker import LOST_CHANNEL, Order
from yaie.curriculum.manifest import ROOT, load_curriculum

KEPT_OUTPUT = 16_384
MOST_PROCESSES = 32
FAMILY_SECONDS = 0.25
"""Looking for children costs more than a look at one process, so it happens less often."""
TRACE_SECONDS = 2.0
GIB = 2**30
MARK = "YAIE_GRADING"
"""An environment variable by which children are found that have left session and group."""
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)


class WorkerProcess:
    """Use as a context manager; afterwards nothing of it is left, and `output` is complete.

    take: called from a thread for every event that the worker sends.
    """

    def __init__(self, order: Order, take: Callable[[dict[str, Any]], None]) -> None:
        self._order = order
        self._take = take
        self._tail = bytearray()
        self._readers: list[threading.Thread] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._looked = 0.0

    def __enter__(self) -> "WorkerProcess":
        self._traces = tempfile.TemporaryFile()  # first: what fails after it leaves no folder
        self._scratch = tempfile.mkdtemp(prefix="yaie-grade-")
        self._token = secrets.token_hex(8)
        self._began = time.time()
        events, self._order.fd = os.pipe()
        self._order.lifeline, self._lifeline = os.pipe()
        self._order.traces = self._traces.fileno()
        theirs = (self._order.fd, self._order.lifeline)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "grader.worker", json.dumps(asdict(self._order))],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=self._scratch,
                env=self._environment(),
                pass_fds=[*theirs, self._order.traces],
                start_new_session=True,
            )
            assert self._process.stdout is not None
            self._read(_read_events, os.fdopen(events), self._take)
            self._read(_keep_tail, self._process.stdout, self._tail)
        except BaseException:
            if not self._readers:
                os.close(events)
            self.__exit__()
            raise
        finally:
            for fd in theirs:
                os.close(fd)
        return self

    def __exit__(self, *error: object) -> None:
        self._kill()
        for reader in self._readers:
            reader.join(timeout=1)  # whoever escaped even so may hold the pipe open for ever
        os.close(self._lifeline)
        self._traces.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _environment(self) -> dict[str, str]:
        ours = {
            "TMPDIR": self._scratch,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": str(ROOT),
            "TOKENIZERS_PARALLELISM": "false",
            # Each arena maps 64 MiB that count against the limit without being used.
            "MALLOC_ARENA_MAX": "2",
            MARK: self._token,
        }
        kept = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
        return kept | ONE_THREAD | ours | environment(load_curriculum()[self._order.lab])

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

    def excess(self, memory_gib: float) -> str:
        """What it takes too much of, "" if nothing."""
        assert self._process is not None
        with suppress(psutil.Error):
            worker = psutil.Process(self._process.pid)
            total = worker.memory_info().rss
            if total <= memory_gib * GIB and time.monotonic() - self._looked > FAMILY_SECONDS:
                self._looked = time.monotonic()
                children = worker.children(recursive=True)
                if len(children) > MOST_PROCESSES:
                    return f"It started more than {MOST_PROCESSES} processes."
                if children:
                    total = sum(map(_own_bytes, [worker, *children]))
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
        """Until it is written: at once, or when a busy machine comes to it."""
        deadline, size = time.monotonic() + TRACE_SECONDS, before
        while time.monotonic() < deadline:
            time.sleep(0.05)
            last, size = size, self._trace_size()
            if before < last == size:
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

    def _kill(self) -> None:
        """Kill the worker's process group, and then whoever has left it."""
        if self._process is None:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for _ in range(3):  # one that is killed may have started another meanwhile
            if not (escaped := self._escaped()):
                return
            for process in escaped:
                with suppress(psutil.Error):
                    process.kill()
            psutil.wait_procs(escaped, timeout=0.5)

    def _escaped(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter(["create_time"]):
            with suppress(psutil.Error, OSError):
                # Only the young ones: reading an environment is slow.
                if (process.info["create_time"] or 0) < self._began - 1:
                    continue
                is_ours = process.environ().get(MARK) == self._token
                if is_ours and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found


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


def _read_events(pipe: IO[str], take: Callable[[dict[str, Any]], None]) -> None:
    with pipe:
        for line in pipe:
            with suppress(ValueError, KeyError, TypeError):  # the part may write here too
                take(json.loads(line))


def _keep_tail(pipe: IO[bytes], tail: bytearray) -> None:
    with pipe:
        while chunk := pipe.read1(65_536):  # type: ignore[attr-defined]
            tail += chunk
            del tail[:-KEPT_OUTPUT]
