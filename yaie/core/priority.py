"""How a thread lets others go first: an engine computes on the cores that long texts take."""

import contextlib
import os
import sys
import threading

LOWEST = 19


def step_back() -> None:
    """Give this thread, and those that it starts, what the others leave of the cores. Only Linux knows
    priorities of threads: elsewhere nothing happens."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # refused by a sandbox
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWEST)
