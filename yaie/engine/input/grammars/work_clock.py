"""The processor time that a thread's own work has taken, without that of Python's garbage collector.

A full collection takes a fifth of a second in a process that has loaded a model, and comes when some
thread has made enough objects: the request whose mask is made just then is not to blame.
"""

import gc
import threading
import time
from typing import Any


class _Collections(threading.local):
    """began: of the collection that runs on this thread. seconds: of all that have begun since this
    clock was read for the first time."""

    began: float | None = None
    seconds = 0.0


_collections = _Collections()


def work_time() -> float:
    """In seconds; only differences mean something. Other processes and threads have no part in it."""
    if _note not in gc.callbacks:
        gc.callbacks.append(_note)
    return time.thread_time() - _collections.seconds


def _note(phase: str, info: dict[str, Any]) -> None:
    """Called by the collector, on the thread that it stops."""
    if info["generation"] != 2:
        return
    if phase == "start":
        _collections.began = time.thread_time()
    elif _collections.began is not None:
        _collections.seconds += time.thread_time() - _collections.began
