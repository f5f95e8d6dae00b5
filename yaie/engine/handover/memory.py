"""Shared memory without a name, as an open file that one process passes to another.

A process that maps a file which another one makes shorter is ended by SIGBUS as soon as it reads behind
the new end. So the memory is sealed (memfd_create(2), "File sealing"): the kernel then lets nobody
change its size or what is in it. The receiver asks the kernel for the seals before it looks inside.
"""

import mmap
import os
import sys
import tempfile

import numpy as np
from numpy.typing import NDArray

if sys.platform == "linux":
    import fcntl

    SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL

Data = NDArray[np.uint8]


def shared(data: Data) -> int:
    """An open file of memory with this in it, sealed. Raises OSError if there is no memory for it."""
    if sys.platform == "linux":
        file = os.memfd_create("yaie-blocks", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    else:  # a file without a name, where the system has no memory of that kind
        with tempfile.TemporaryFile() as temporary:
            file = os.dup(temporary.fileno())
    try:
        with os.fdopen(os.dup(file), "wb") as writer:
            writer.write(data.data)
        if sys.platform == "linux":
            fcntl.fcntl(file, fcntl.F_ADD_SEALS, SEALS)
    except BaseException:
        os.close(file)
        raise
    return file


def mapped(file: int, num_bytes: int) -> Data:
    """What such a file holds: uint8, [num_bytes]; where memory cannot be sealed, a copy.

    Raises ValueError if it is not as long or not sealed, OSError if it cannot be mapped.
    """
    if sys.platform == "linux":
        _expect_seals(file)
    if os.fstat(file).st_size != num_bytes:
        raise ValueError("the file is not as long as the message says")
    if sys.platform != "linux":
        return _copied(file, num_bytes)
    memory = mmap.mmap(file, num_bytes, access=mmap.ACCESS_COPY)
    return np.frombuffer(memory, dtype=np.uint8)


def _expect_seals(file: int) -> None:
    """Raise ValueError unless the kernel keeps everybody from changing it."""
    try:
        seals = fcntl.fcntl(file, fcntl.F_GET_SEALS)
    except OSError:  # it is no memory of this kind
        seals = 0
    if seals & SEALS != SEALS:
        raise ValueError("the memory is not sealed: its sender could make it shorter meanwhile")


def _copied(file: int, num_bytes: int) -> Data:
    data = np.empty(num_bytes, dtype=np.uint8)
    filled = 0
    while filled < num_bytes:
        count = os.preadv(file, [data.data[filled:]], filled)
        if not count:
            raise ValueError("the file is not as long as the message says")
        filled += count
    return data
