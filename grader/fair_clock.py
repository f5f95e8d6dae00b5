"""A clock for limits that leaves out the time in which other programs had the processor.

Linux tells of each thread for how long it was ready to run and did not (the second number of
/proc/PID/task/TID/schedstat, in nanoseconds). A process advances as its slowest thread does, so between
two looks the longest such wait counts. Where the system does not tell, the clock is one on the wall.
"""

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import psutil

T = TypeVar("T")

MOST = 8
"""One second on this clock is at most so many on the wall: whatever else runs, a grading ends."""
SLICE = 0.5
"""Seconds between two looks of one who waits."""


def waits(pids: Iterable[int]) -> dict[str, float]:
    """Seconds that each thread of some processes was kept waiting so far, by the thread's folder in
    /proc. What has ended has none."""
    found = {}
    for pid in pids:
        with suppress(OSError):
            for thread in Path(f"/proc/{pid}/task").iterdir():
                with suppress(
                    OSError, IndexError
                ):  # no such file outside of Linux, or it has ended
                    found[str(thread)] = int((thread / "schedstat").read_bytes().split()[1]) / 1e9
    return found


def this_process() -> list[int]:
    return [os.getpid()]


def with_children() -> list[int]:
    """This process and those that it has started, ranks say, and those that they have."""
    try:
        return _family(os.getpid())
    except OSError:  # no such file outside of Linux
        return [os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))]


def _family(pid: int) -> list[int]:
    """Asking for the parents of all processes instead takes milliseconds, more than many a test."""
    family = [pid]
    for thread in Path(f"/proc/{pid}/task").iterdir():
        for child in (thread / "children").read_text("ascii").split():
            family.append(int(child))
            with suppress(OSError):  # it has ended
                family[-1:] = _family(int(child))
    return family


class FairClock:
    """Runs from when it is made. It is read behind a `look`, and right where looks are not rare."""

    def __init__(self, pids: Callable[[], Iterable[int]] = this_process) -> None:
        """pids: the processes whose time it is, asked at each look."""
        self._pids = pids
        self._began = self._looked = time.monotonic()
        self._kept = 0.0
        self._before = waits(pids())

    def look(self) -> None:
        """Take note of how long the processes have waited since the last look."""
        now, found = time.monotonic(), waits(self._pids())
        longest = max((found[each] - self._before.get(each, 0.0) for each in found), default=0.0)
        self._kept += min(max(longest, 0.0), now - self._looked)
        self._looked, self._before = now, found

    @property
    def used(self) -> float:
        """Seconds that the processes had for themselves, and at least one in MOST."""
        wall = time.monotonic() - self._began
        return max(wall - self._kept, wall / MOST)

    @property
    def is_starved(self) -> bool:
        """Whether most of the time went to other programs."""
        if self._before:
            return self._kept > (time.monotonic() - self._began) / 2
        return os.getloadavg()[0] > (os.cpu_count() or 1)  # a guess

    def until(self, seconds: float, wait: Callable[[float], T]) -> T:
        """What `wait` returns, which is told for how many seconds it may: as soon as that is true, or
        when the clock has come to `seconds`."""
        while True:
            left = seconds - self.used
            if (found := wait(max(0.0, min(left, SLICE)))) or left <= 0:
                return found
            self.look()
