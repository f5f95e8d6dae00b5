"""Messages over a Unix socket, and with them open files of shared memory that have no name.

The kernel frees such memory when no process has it open. Nothing is left behind, however they end.
"""

import contextlib
import json
import mmap
import os
import socket
import stat
import struct
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from yaie.core.errors import ConfigError

Message = dict[str, Any]
MOST_BYTES = 64 << 20
"""Of a message without its file: some millions of tokens."""
_LENGTH = struct.Struct("!I")
SHORT_SECONDS = 1.0


class Channel:
    """One connection. What arrives is handed over on a thread, what is sent waits for another one."""

    def __init__(
        self,
        connection: socket.socket,
        on_message: Callable[["Channel", Message, int | None], None],
        on_end: Callable[["Channel"], None],
    ) -> None:
        """on_message: gets each message and, if one came along, an open file, which is then its own.
        on_end: is called once, when the other side is gone. Both are called on a thread of this one."""
        self._socket = connection
        self._on_message, self._on_end = on_message, on_end
        self._outbox: SimpleQueue[tuple[Message, int | None] | None] = SimpleQueue()
        for target, name in ((self._read, "yaie-blocks-in"), (self._write, "yaie-blocks-out")):
            threading.Thread(target=target, name=name, daemon=True).start()

    def send(self, message: Message, file: int | None = None) -> None:
        """Send it when its turn comes. file: an open one, which is closed then."""
        self._outbox.put((message, file))

    def close(self) -> None:
        """End the connection."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._outbox.put(None)

    def _write(self) -> None:
        broken = False
        while (item := self._outbox.get()) is not None:
            message, file = item
            try:
                if not broken:
                    self._send_one(json.dumps(message).encode(), file)
            except OSError:  # the other side is gone, as `_read` finds out
                broken = True
            finally:
                if file is not None:
                    os.close(file)

    def _send_one(self, data: bytes, file: int | None) -> None:
        files = [] if file is None else [file]
        socket.send_fds(self._socket, [_LENGTH.pack(len(data))], files)
        self._socket.sendall(data)

    def _read(self) -> None:
        with contextlib.suppress(OSError, EOFError, ValueError), self._socket:
            while True:
                message, file = self._receive_one()
                self._on_message(self, message, file)
        self._outbox.put(None)
        self._on_end(self)

    def _receive_one(self) -> tuple[Message, int | None]:
        head, files, _, _ = socket.recv_fds(self._socket, _LENGTH.size, 1)
        file = files[0] if files else None
        try:
            head += self._exactly(_LENGTH.size - len(head)) if head else b""
            if not head:
                raise EOFError
            (length,) = _LENGTH.unpack(head)
            if length > MOST_BYTES:
                raise ValueError("no message is so long")
            message = json.loads(self._exactly(length))
            if not isinstance(message, dict):
                raise ValueError("a message is an object")
        except BaseException:
            if file is not None:
                os.close(file)
            raise
        return message, file

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            piece = self._socket.recv(min(1 << 20, count - len(data)))
            if not piece:
                raise EOFError
            data += piece
        return bytes(data)


def shared(data: NDArray[np.uint8]) -> int:
    """An open file of shared memory with this in it."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("yaie-blocks", os.MFD_CLOEXEC)
    else:  # a file without a name, where the system has no memory of that kind
        with tempfile.TemporaryFile() as temporary:
            file = os.dup(temporary.fileno())
    with os.fdopen(os.dup(file), "wb") as writer:
        writer.write(data.data)
    return file


def mapped(file: int, num_bytes: int) -> NDArray[np.uint8]:
    """What such a file holds, which is closed; memory is taken when it is written to. Raises ValueError
    if it is not as long."""
    try:
        if num_bytes < 1 or os.fstat(file).st_size != num_bytes:
            raise ValueError("the file is not as long as the message says")
        memory = mmap.mmap(file, num_bytes, access=mmap.ACCESS_COPY)
    finally:
        os.close(file)
    return np.frombuffer(memory, dtype=np.uint8)


def connected(path: Path) -> socket.socket | None:
    """A connection to the process that listens there; None if there is none."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(SHORT_SECONDS)
    try:
        connection.connect(str(path))
    except OSError:
        connection.close()
        return None
    connection.settimeout(None)
    return connection


def listening(path: Path) -> socket.socket:
    """A socket for this user alone. Raises ConfigError."""
    check_free(path)
    with contextlib.suppress(FileNotFoundError):
        path.unlink()  # of a server that was killed
    listener = socket.socket(socket.AF_UNIX)
    mask = os.umask(0o177)
    try:
        listener.bind(str(path))
        listener.listen()
    except OSError as error:
        listener.close()
        raise ConfigError(f"cannot listen at {path}: {error}", param="handover") from None
    finally:
        os.umask(mask)
    return listener


def check_free(path: Path) -> None:
    """Raise ConfigError unless a socket can be made there."""
    check_path(path)
    if not path.parent.is_dir():
        raise ConfigError(f"handover: there is no folder {path.parent}", param="handover")
    if path.exists() and not stat.S_ISSOCK(path.stat().st_mode):
        raise ConfigError(
            f"handover: {path} is there and no socket: name another path", param="handover"
        )
    if (other := connected(path)) is not None:
        other.close()
        raise ConfigError(
            f"handover: another prefill server listens at {path}: name another path, or stop that one",
            param="handover",
        )


def check_path(path: Path) -> None:
    """Raise ConfigError for a path that no socket can have."""
    if not hasattr(socket, "AF_UNIX"):
        raise ConfigError("roles need Unix sockets, which this system lacks", param="role")
    if len(os.fsencode(path)) > 103:
        raise ConfigError(
            f"handover: {path} is too long for a socket, which has 103 bytes", param="handover"
        )
