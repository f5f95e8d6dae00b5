"""Ranks as processes of their own, joined by gloo: what was tested on strict links runs on real ones.

They are started once, when they are first wanted, and asked case by case. Where a case fails or stands
still they are killed, and the next case has new ones.
"""

import ctypes
import faulthandler
import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import ModuleType
from typing import Any

from grader.explain import stub_in
from grader.fair_clock import FairClock
from grader.kit.expect import Fault, Mismatch
from grader.submission import Submission, load, locate, locate_in_trace, told

PATIENCE_SECONDS = 6.0
"""For a case on all ranks."""
START_SECONDS = 30.0
DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of Linux's prctl."""
STANDS_STILL = (
    "Real links keep small tensors in a buffer, so that a send seems over at once; large ones are sent "
    "only while the other rank receives."
)

Case = Callable[..., Any]
"""case(part, link, *args), of a module that can be imported by its name; what it returns is pickled."""


@dataclass(frozen=True, slots=True)
class _Failed:
    """What a case has raised: a stub's words, or told by the rank."""

    said: str
    where: str
    is_stub: bool


class RankProcesses:
    """size: how many ranks there are at most."""

    def __init__(self, submission: Submission, size: int) -> None:
        self._submission = submission
        self._size = size
        self._started: list[tuple[Any, Connection]] = []
        self._folder = ""

    def run(self, size: int, case: Case, *args: Any) -> list[Any]:
        """What a case returns on each of the first `size` ranks. Raises Mismatch."""
        if not self._started:
            self._start()
        pipes = [pipe for _, pipe in self._started[:size]]
        try:
            for pipe in pipes:
                pipe.send_bytes(pickle.dumps((size, case, args)))
            return self._answers(pipes, PATIENCE_SECONDS)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Kill what runs. The next case starts anew."""
        for process, pipe in self._started:
            process.kill()
            pipe.close()
        for process, _ in self._started:
            process.join()
        self._started = []

    def _start(self) -> None:
        # Forked, a rank need not import torch again; a Mac's libraries do not bear it.
        context: Any = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
        self._folder = tempfile.mkdtemp(prefix="ranks-")
        for rank in range(self._size):
            ours, theirs = context.Pipe()
            arguments = (self._submission, self._folder, rank, self._size, theirs)
            process = context.Process(target=_serve, args=arguments, daemon=True)
            process.start()
            theirs.close()
            self._started.append((process, ours))
        self._answers([pipe for _, pipe in self._started], START_SECONDS)

    def _answers(self, pipes: list[Connection], seconds: float) -> list[Any]:
        """Of every rank, as soon as all have answered or one has failed."""
        answers: dict[int, Any] = {}
        clock = FairClock(lambda: [process.pid for process, _ in self._started])
        while len(answers) < len(pipes):
            left = [pipe for rank, pipe in enumerate(pipes) if rank not in answers]
            ready = clock.until(seconds, partial(wait, left))
            if not ready:
                raise self._stands_still(len(pipes), answers, seconds)
            for pipe in ready:
                rank = pipes.index(pipe)  # type: ignore[arg-type]
                try:
                    answers[rank] = pickle.loads(pipes[rank].recv_bytes())
                except EOFError:
                    raise Mismatch(
                        f"the process of rank {rank} of {len(pipes)} has ended"
                    ) from None
                if isinstance(answers[rank], _Failed):
                    raise _as_error(answers[rank], rank, len(pipes))
        return [answers[rank] for rank in range(len(pipes))]

    def _stands_still(self, size: int, answers: dict[int, Any], seconds: float) -> Mismatch:
        """Which line of the part each rank is at that has not answered."""
        for process, _ in self._started[:size]:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGUSR2)
        time.sleep(0.3)
        lines, first = [], ""
        for rank in range(size):
            trace = Path(self._folder, f"trace-{rank}").read_text("utf-8", "replace")
            where = "" if rank in answers else locate_in_trace(trace, self._submission)
            first = first or where
            at = where.replace("\n    ", ": ") or ("has returned" if rank in answers else "unknown")
            lines.append(f"rank {rank}: {at}")
        problem = f"{size} real processes were still running after {seconds:g} seconds"
        return Fault("\n".join([problem, *lines]), why=STANDS_STILL, where=first)


def _as_error(failed: _Failed, rank: int, size: int) -> Exception:
    if failed.is_stub:
        return NotImplementedError(failed.said)
    return Fault(f"rank {rank} of {size} real processes raises {failed.said}", where=failed.where)


def _serve(submission: Submission, folder: str, rank: int, size: int, pipe: Connection) -> None:
    """A rank's process: carry out cases until the pipe is closed."""
    try:
        _settle_in(folder, rank, pipe)
        part = sys.modules.get(f"labs.{submission.lab.key}") or load(submission)
        links = _links(folder, rank, size)
        pipe.send_bytes(pickle.dumps("ready"))
        while True:
            wanted, case, args = pickle.loads(pipe.recv_bytes())
            pipe.send_bytes(pickle.dumps(_carried_out(submission, part, links[wanted], case, args)))
    except (EOFError, OSError):
        pass
    finally:
        os._exit(0)  # of the parent's tests, threads and exit handlers this copy has none


def _settle_in(folder: str, rank: int, pipe: Connection) -> None:
    """End with the parent, hold none of its files, and tell lines when asked."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
        os.closerange(3, pipe.fileno())
        os.closerange(pipe.fileno() + 1, 1024)
    traces = open(Path(folder, f"trace-{rank}"), "w")  # noqa: SIM115, for as long as the process lives
    faulthandler.register(signal.SIGUSR2, traces, all_threads=False)
    signal.setitimer(signal.ITIMER_REAL, 0)
    interface = "lo" if sys.platform == "linux" else "lo0"
    os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)


def _links(folder: str, rank: int, size: int) -> dict[int, Any]:
    """The link of each group of the first 2, 3, ... ranks, as far as this rank is in it."""
    import torch.distributed as dist

    from yaie.worker.parallel.links import GroupLink

    store = dist.FileStore(str(Path(folder, "store")), size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    links: dict[int, Any] = {size: GroupLink()}
    for smaller in range(2, size):
        group = dist.new_group(list(range(smaller)))
        if rank < smaller:
            links[smaller] = GroupLink(group)
    return links


def _carried_out(
    submission: Submission, part: ModuleType, link: Any, case: Case, args: tuple[Any, ...]
) -> Any:
    try:
        return case(part, link, *args)
    except BaseException as error:  # noqa: BLE001, a part may raise anything
        stub = stub_in(error)
        return _Failed(stub.string if stub else told(error), locate(error, submission), bool(stub))
