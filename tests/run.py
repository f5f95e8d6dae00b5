"""Runs the tests as `make test` does, and as `.ci/run` ends: in parallel, without those of the night.

python -m tests.run                     # all of them, in a random order
python -m tests.run tests/engine -x     # what pytest takes
"""

import math
import os
import sys

import psutil

from yaie.system.processor import usable_cores

PARALLEL = ("--dist", "loadfile", "--no-loadscope-reorder", "-rfE")
"""Options of pytest. A file's tests run in one process; `conftest.py` puts long files first, which xdist
must keep. Only failures are listed: `left_out.py` tells of the rest in a line."""
WAITING = 1.25
"""Processes for each core: tests wait for servers, browsers and time limits."""
WORKER_BYTES = 2 << 30
"""That a process of tests takes at most, with what it starts."""


def num_workers() -> int:
    """How many processes run tests here."""
    cores = usable_cores() or os.cpu_count() or 1
    room = psutil.virtual_memory().available // WORKER_BYTES
    return max(1, min(math.ceil(WAITING * cores), room))


def command(*options: str) -> list[str]:
    """Of a run with these options."""
    return [sys.executable, "-m", "pytest", "-n", str(num_workers()), *PARALLEL, *options]


if __name__ == "__main__":
    arguments = command("-m", "not nightly", *sys.argv[1:])
    sys.stdout.flush()
    os.execv(arguments[0], arguments)
