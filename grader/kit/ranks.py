"""Ranks as threads of one process, one running at a time: their messages are tested without a network.

A rank runs until it has to wait, then the next one in line that can go on. So every run of the same
code is the same, and where no rank can go on there is a deadlock, known at once. `rank_links.py` has the
links between them, `rank_group.py` the collectives.

Not imported by `grader.kit`: only suites of ranks need them.
"""

import ctypes
import linecache
import os
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from grader.explain import stub_in
from grader.fair_clock import FairClock
from grader.kit.expect import Fault, Mismatch
from grader.submission import told
from yaie.curriculum.manifest import ROOT

PATIENCE_SECONDS = 4.0
"""For all ranks of a run together."""
BLOCKING = (
    "A send may be over only when the other rank receives. Where all ranks wait for their sends before "
    "they receive, none goes on: begin both, then wait."
)
SAME_CALLS = (
    "Every rank must make the same calls in the same order: a branch that one rank does not take, or a "
    "return before the call, leaves the others waiting."
)


class Abandoned(BaseException):
    """Ends the thread of a rank whose run is over."""


@dataclass(slots=True)
class _Waiting:
    """ready: whether it can go on. what: what it waits for. where: file and line, source: its text."""

    ready: Callable[[], bool]
    what: Callable[[], str]
    where: str
    source: str

    def __str__(self) -> str:
        return f"waits {self.what()} ({self.where}: {self.source})"


@dataclass(slots=True)
class _Rank:
    """One rank's thread. go: released when it may run. waits: where and for what, if it does.

    left: the line of the part that returned last, and its text.
    """

    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    thread: threading.Thread | None = None
    waits: _Waiting | None = None
    left: tuple[str, str] = ("", "")
    is_over: bool = False
    result: Any = None

    def __str__(self) -> str:
        if self.waits is not None:
            return str(self.waits)
        where, source = self.left
        return f"has returned ({where}: {source})" if where else "has returned"


class Ranks:
    """Runs of some ranks. part: the package under test, whose lines are named.

    order: which rank runs first if several can. sent: bytes that each rank has sent. log: what each rank
    did, in order, as its link and its work write it down. at_end: called in a rank's thread when its
    work is done, and raises Mismatch if that left something undone. why_stuck: what explains a deadlock.
    """

    def __init__(self, part: Any, size: int, order: Sequence[int] = ()) -> None:
        self.size = size
        self.sent = [0] * size
        self.log: list[list[Any]] = [[] for _ in range(size)]
        self.at_end: Callable[[int], None] = lambda rank: None
        self.why_stuck: Callable[[], str] = lambda: ""
        self._order = list(order) or list(range(size))
        self._home = str(Path(getattr(part, "__file__", None) or ".").parent) + os.sep
        self._ranks: list[_Rank] = []
        self._over = threading.Event()
        self._error: BaseException | None = None
        self._is_abandoned = False
        self._watching: Any = None

    def run(self, work: Callable[[int], Any]) -> list[Any]:
        """What `work(rank)` returns on each rank. Raises Mismatch with what was wrong."""
        self._ranks = [_Rank() for _ in range(self.size)]
        self._watching = (
            sys.getprofile()
        )  # what watches this thread's calls sees those of ranks, too
        for number, rank in enumerate(self._ranks):
            rank.thread = threading.Thread(target=self._body, args=(number, work), daemon=True)
            rank.thread.start()
        self._pass_on()
        in_time = FairClock().until(PATIENCE_SECONDS, self._over.wait)
        if not in_time and self._error is None:
            self._error = self._still_running()
        self._abandon()
        if self._error is not None:
            raise self._error
        return [rank.result for rank in self._ranks]

    def wait(self, number: int, ready: Callable[[], bool], what: Callable[[], str]) -> None:
        """In the thread of a rank: let others run until this holds. what: names what is awaited."""
        if self._is_abandoned:
            raise Abandoned
        if ready():
            return
        rank = self._ranks[number]
        rank.waits = _Waiting(ready, what, *self._at())
        self._pass_on()
        rank.go.acquire()
        if self._is_abandoned:
            raise Abandoned
        rank.waits = None

    def line(self) -> str:
        """The innermost line of the part that runs in this thread, as a report shows it."""
        where, source = self._at()
        return f"{where}\n    {source}" if where else ""

    def _at(self, frame: FrameType | None = None) -> tuple[str, str]:
        """File and line of the part in a frame or in this thread, and what stands there."""
        frame = frame or sys._getframe(1)
        while frame is not None:
            file = frame.f_code.co_filename
            if file.startswith(self._home):
                source = linecache.getline(file, frame.f_lineno).strip()
                shown = file.removeprefix(f"{ROOT}{os.sep}")
                shown = shown if shown != file else file.removeprefix(self._home)
                return f"{shown}, line {frame.f_lineno}", source
            frame = frame.f_back
        return "", ""

    def _body(self, number: int, work: Callable[[int], Any]) -> None:
        rank = self._ranks[number]
        rank.go.acquire()
        if self._is_abandoned:
            return
        try:
            sys.setprofile(partial(self._on_event, rank))
            try:
                rank.result = work(number)
            finally:
                sys.setprofile(None)
            self.at_end(number)
        except Abandoned:
            return
        except BaseException as error:  # noqa: BLE001, a part may raise anything
            self._error = _of_rank(error, number, self.size)
            self._over.set()
            return
        rank.is_over = True
        self._pass_on()

    def _on_event(self, rank: _Rank, frame: FrameType, event: str, argument: object) -> None:
        if event == "return" and frame.f_code.co_filename.startswith(self._home):
            rank.left = self._at(frame)
        if self._watching is not None:
            self._watching(frame, event, argument)

    def _pass_on(self) -> None:
        """Let the next rank run, or end the run if there is none."""
        for number in self._order:
            rank = self._ranks[number]
            if not rank.is_over and (rank.waits is None or rank.waits.ready()):
                rank.go.release()
                return
        if not all(rank.is_over for rank in self._ranks):
            self._error = self._deadlock()
        self._over.set()

    def _deadlock(self) -> Mismatch:
        waiting = [rank.waits for rank in self._ranks if rank.waits is not None]
        lines = [f"rank {number} {rank}" for number, rank in enumerate(self._ranks)]
        for_sends = sum("to receive" in line for line in lines)
        why = BLOCKING if for_sends == self.size else self.why_stuck()
        why = SAME_CALLS if any("waits in" in line for line in lines) else why
        first = waiting[0]
        where = f"{first.where}\n    {first.source}" if first.where else ""
        return Fault("\n".join(["deadlock: no rank can go on", *lines]), why=why, where=where)

    def _still_running(self) -> Mismatch:
        frames = sys._current_frames()
        for number, rank in enumerate(self._ranks):
            if rank.waits is None and not rank.is_over and rank.thread is not None:
                frame = frames.get(rank.thread.ident or 0)
                where, source = self._at(frame) if frame else ("", "")
                if where:
                    problem = f"rank {number} was still running after {PATIENCE_SECONDS:g} seconds"
                    where = f"{where}\n    {source}"
                    return Fault(problem, why="A loop that never ends.", where=where)
        return Mismatch(f"the ranks were still running after {PATIENCE_SECONDS:g} seconds")

    def _abandon(self) -> None:
        """End all threads: those that wait at once, one that runs where it next can."""
        self._is_abandoned = True
        for rank in self._ranks:
            rank.go.release()
        for rank in self._ranks:
            assert rank.thread is not None
            rank.thread.join(0.2)
            if rank.thread.is_alive():
                ident = ctypes.c_ulong(rank.thread.ident or 0)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(Abandoned))


def _of_rank(error: BaseException, number: int, size: int) -> BaseException:
    """An error with the rank that it happened on. What a stub raises stays as it is."""
    if isinstance(error, Mismatch) or stub_in(error) or not isinstance(error, Exception):
        return error
    named = Mismatch(f"rank {number} of {size} raises {told(error)}")
    named.__cause__ = error
    return named
