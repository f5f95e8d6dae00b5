"""Keeps the process's memory from holding up what runs, and gives back what is free."""

import atexit
import contextlib
import ctypes
import gc
from collections.abc import Iterator

DUE = 20
"""An idle engine starts a full collection once the younger generations were collected so often. Until
then up to some tens of megabytes of garbage may stay."""
OVERDUE = 10_000
"""The same whatever runs. A large answer is a million objects, alive until it is sent: to look through
them takes a third of a second."""
NEVER = 1 << 30


def freeze_heap() -> None:
    """Tell the garbage collector that what there is now stays: the modules of torch and transformers are
    a million objects, and to look through them takes it half a second, in which no other thread runs.
    To be called once all is loaded."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(700, 10, OVERDUE)


def collect_at_rest() -> None:
    """Look through all objects, unless a large answer is being written, and return what is free to the
    system. To be called where nothing has run for a while."""
    if gc.get_threshold()[2] != NEVER:
        gc.collect()
        give_back_memory()


def end_quickly() -> None:
    """When the interpreter ends, have the garbage collector look at nothing: with torch and transformers
    loaded it takes a second, for memory that goes back to the system at once."""
    atexit.register(gc.freeze)


@contextlib.contextmanager
def few_collections() -> Iterator[None]:
    """Collect none but young objects meanwhile. A large answer is a million objects, none of them
    garbage: to look through them takes a tenth of a second, in which no other thread runs."""
    young, middle, old = gc.get_threshold()
    gc.set_threshold(young, middle, NEVER)
    try:
        yield
    finally:
        gc.set_threshold(young, middle, old)


def give_back_memory() -> None:
    """Return what is free to the system. The C library keeps it for the thread that used it otherwise:
    gigabytes, after a long text."""
    with contextlib.suppress(OSError, AttributeError):  # glibc alone has it
        ctypes.CDLL(None).malloc_trim(0)
