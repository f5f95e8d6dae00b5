"""Runs the tests as `make test` does, and as `.ci/run` ends: in parallel, without those of the night.

python -m tests.run                     # all of them, in a random order
python -m tests.run tests/engine -x     # what pytest takes
"""

import os
import sys

PARALLEL = ("-n", "auto", "--dist", "loadfile", "--no-loadscope-reorder", "-rfE")
"""Options of pytest. A file's tests run in one process; `conftest.py` puts long files first, which xdist
must keep. Only failures are listed: `left_out.py` tells of the rest in a line."""


def command(*options: str) -> list[str]:
    """Of a run with these options."""
    return [sys.executable, "-m", "pytest", *PARALLEL, *options]


if __name__ == "__main__":
    arguments = command("-m", "not nightly", *sys.argv[1:])
    sys.stdout.flush()
    os.execv(arguments[0], arguments)
