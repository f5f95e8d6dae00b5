"""How busy the cores are that this process may use, and by whom: `CoreUse`."""

import os
import time
from typing import NamedTuple

import psutil

SHORTEST = 0.1
"""Seconds. Systems count in ticks of a hundredth of a second; less than ten of them say little."""


class Shares(NamedTuple):
    """Of a stretch of time, in cores. idle: that nobody used. others: that other programs used, or the
    host of a virtual machine took away."""

    idle: float
    others: float


class CoreUse:
    """Looks at the system's counters, from one call to the next."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Begin a new stretch of time here."""
        self._began, self._idle, self._own = time.monotonic(), _idle_seconds(), time.process_time()

    def look(self) -> Shares | None:
        """What the cores did since the last look, which ends the stretch; None if that is too short."""
        now = time.monotonic()
        seconds = now - self._began
        if seconds < SHORTEST:
            return None
        idle_before, own_before = self._idle, self._own
        self.restart()
        idle = (sum(self._idle.values()) - sum(idle_before.values())) / seconds
        own = (self._own - own_before) / seconds
        return Shares(max(0.0, idle), max(0.0, len(self._idle) - idle - own))


def _idle_seconds() -> dict[int, float]:
    """Of each core, since the system started."""
    times = dict(enumerate(psutil.cpu_times(percpu=True)))
    if hasattr(os, "sched_getaffinity"):
        may_use = os.sched_getaffinity(0)
        times = {core: one for core, one in times.items() if core in may_use} or times
    return {core: one.idle + getattr(one, "iowait", 0.0) for core, one in times.items()}
