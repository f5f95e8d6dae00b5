"""How threads let each other go first: an engine computes on the cores that long texts take."""

import contextlib
import os
import sys
import threading

LOWEST = 19
SPINS = 120_000
"""How often a thread of a CPU's team looks whether the others are done, before it sleeps. GCC's OpenMP,
with which PyTorch computes on Linux, looks 300,000 times: milliseconds at each barrier where one is late
because another program's thread has its core. With too few looks threads sleep between the operations of
a step, which then takes longer on idle cores, too: of the tutor by 3% with 60,000 in ten pairs, and with
these by nothing that eight pairs showed. See `yaie/bench/evidence/barriers.py`."""
SPIN_VARIABLES = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")


def step_back() -> None:
    """Give this thread, and those that it starts, what the others leave of the cores. Only Linux knows
    priorities of threads: elsewhere nothing happens."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # refused by a sandbox
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWEST)


def spin_less() -> None:
    """Have the threads of a team sleep sooner at a barrier, unless the environment says what they do.

    To be called before torch is imported: OpenMP reads its variables once. Processes started later
    inherit them.
    """
    if not any(os.environ.get(name) for name in SPIN_VARIABLES):
        os.environ["GOMP_SPINCOUNT"] = str(SPINS)
