"""How a process with an engine ends."""

import atexit
import logging
import os
import sys
from contextlib import suppress
from typing import NoReturn


def exit_now(code: int) -> NoReturn:
    """End this process, with what it has logged and printed written out. With 0, what was registered to
    run at its end does so; otherwise a thread hangs, for which that might wait.

    The interpreter's own end takes the modules of torch and transformers apart one by one: half a
    second, and several on busy cores. It also waits for threads, or stops one in the middle of C++ code.
    """
    if code == 0:
        atexit._run_exitfuncs()  # also removes what multiprocessing has named in the system
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # no one reads it any more
            stream.flush()
    os._exit(code)
