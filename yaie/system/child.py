"""A process that another one of ours has started leaves signals to it, and ends with it."""

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from multiprocessing import resource_tracker

PR_SET_PDEATHSIG = 1


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """A process that is started meanwhile inherits the mask: Ctrl-C waits until it knows what to do."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # a process of multiprocessing's own, whose start resets the mask
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def hold_signals() -> None:
    """The same to the end of this process, for a thread that waits for them (`signal.sigwait`). Threads
    that are there already do not hold them."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))


def leave_signals_to_parent() -> None:
    """A terminal and a service manager signal both processes, and the parent drains first."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):  # they were held back until here
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))


def end_with_parent() -> None:
    """`end_with`, for a process of multiprocessing's."""
    parent = multiprocessing.parent_process()
    if parent is not None and parent.pid is not None:
        end_with(parent.pid)


def end_with(parent: int) -> None:
    """Whatever this process is doing when its parent, of this id, ends: the kernel ends it. For Linux
    the parent is the thread that started it; elsewhere a pipe at its end has to tell."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it was gone before
            os._exit(1)


def how_it_ended(code: int) -> str:
    """A process's exit code in words: 'exited with 1', 'was ended by SIGKILL'."""
    if code >= 0:
        return f"exited with {code}"
    name = signal.Signals(-code).name
    return f"was ended by {name}" + (", perhaps for want of memory" if name == "SIGKILL" else "")
