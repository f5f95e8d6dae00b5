"""One process at a time reads a small file, changes it and writes it back."""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

PATIENCE_SECONDS = 10.0
"""Whoever holds a lock this long is stopped or lost, say with a file server: others go on without it."""
LOOK_SECONDS = 0.01
_held = threading.local()


@contextlib.contextmanager
def locked(file: Path) -> Iterator[bool]:
    """No other process, and no other thread, is in a `locked` block of the same file meanwhile.

    The lock is on `.<name>.lock` beside the file, because `write_whole` puts another file in its place.
    It is left there, empty: a lock that is removed can be held twice. May be nested in one thread.
    Yields whether it is held. It is not where it cannot be had: in a folder that cannot be written, on
    a file system or a system without locks, or after PATIENCE_SECONDS. Then the work is done all the
    same: the file is never half written, but one of two changes made at once may be lost.
    """
    path = file.with_name(f".{file.name}.lock")
    mine: set[Path] = _held.__dict__.setdefault("paths", set())
    if path in mine:
        yield True
        return
    fd = _open(path)
    try:
        has_it = fd is not None and _wait(fd)
        if has_it:
            mine.add(path)
        try:
            yield has_it
        finally:
            mine.discard(path)
    finally:
        if fd is not None:
            os.close(fd)  # which gives the lock up


def _open(path: Path) -> int | None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)
    except OSError:
        return None


def _wait(fd: int) -> bool:
    """Whether the lock was given within PATIENCE_SECONDS."""
    take = _taker()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while take is not None:
        try:
            take(fd)
            return True
        except (BlockingIOError, PermissionError):  # another has it, as POSIX or as Windows says it
            if time.monotonic() > deadline:
                return False
            time.sleep(LOOK_SECONDS)
        except OSError:  # no locks on this file system
            return False
    return False


def _taker() -> Callable[[int], None] | None:
    """Takes a lock at once, or raises OSError."""
    try:
        import fcntl
    except ImportError:  # Windows
        return _windows_taker()
    return lambda fd: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _windows_taker() -> Callable[[int], None] | None:
    try:
        import msvcrt
    except ImportError:
        return None
    lock, mode = getattr(msvcrt, "locking", None), getattr(msvcrt, "LK_NBLCK", 0)
    return None if lock is None else lambda fd: lock(fd, mode, 1)
