"""Commands of the tutor's package that run beside each other, each on one GPU; see retrain.py."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Protocol

import torch

VISIBLE = "CUDA_VISIBLE_DEVICES"


class Job(Protocol):
    """A stage that runs beside this process."""

    def wait(self, timeout: float) -> bool:
        """Whether it ended well within that many seconds; it is ended if it did not."""


class Process:
    """A command of the tutor's package in a process of its own, with what it starts.

    gpu: the only one that it sees, as CUDA_VISIBLE_DEVICES names it; empty: what this process sees.
    """

    def __init__(self, module: str, argv: list[str], gpu: str = "") -> None:
        command = [sys.executable, "-m", f"book.tutor.{module}", *argv]
        seen = {**os.environ, VISIBLE: gpu} if gpu else None
        self._process = subprocess.Popen(command, start_new_session=True, env=seen)

    def wait(self, timeout: float) -> bool:
        try:
            return self._process.wait(max(0.1, timeout)) == 0
        except subprocess.TimeoutExpired:
            return False
        finally:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()


Launch = Callable[[str, list[str], str], Job]


class Clock:
    """Seconds since the command began, and how many are left."""

    def __init__(self, within: float) -> None:
        self.start, self.within = time.perf_counter(), within

    @property
    def now(self) -> float:
        return time.perf_counter() - self.start

    @property
    def left(self) -> float:
        return self.within - self.now

    def say(self, text: str) -> None:
        print(f"[{self.now:4.0f} s] {text}", flush=True)


def gpus() -> tuple[str, ...]:
    """What CUDA_VISIBLE_DEVICES calls each GPU that this process sees; one empty name without any."""
    count = torch.cuda.device_count()
    listed = [name.strip() for name in os.environ.get(VISIBLE, "").split(",") if name.strip()]
    return tuple((listed or [str(index) for index in range(count)])[:count]) or ("",)
