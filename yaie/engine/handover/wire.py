"""Messages over a connected stream socket, and keys and values with them.

    bytes    4                 8               message          data
    what     message's bytes   data's bytes    JSON, an object  keys and values, or nothing

Between processes of one host the data is an open file of shared memory without a name, which the kernel
passes on: nothing is copied through the socket, and the kernel frees the memory when no process has it
open. Between hosts the data follows the message over the same TCP connection.

Why not torch.distributed, which moves tensors between ranks? A group of gloo or NCCL has members that
are named when it is made. When one dies, every later send in the group raises (gloo: "Connection closed
by peer"), and a new process cannot take the dead one's rank, so a new group and a new meeting point are
needed. Its TCPStore listens on all networks and asks for no secret. For bytes in host memory gloo is TCP
as well. NCCL would save the copies through host memory on both sides, and is not used here.
"""

import contextlib
import json
import mmap
import os
import socket
import struct
import tempfile
from typing import Any

import numpy as np
from numpy.typing import NDArray

Message = dict[str, Any]
Data = NDArray[np.uint8]
MOST_BYTES = 64 << 20
"""Of a message without its data: some millions of tokens."""
_HEAD = struct.Struct("!IQ")


class Wire:
    """One connection. One thread may send while another receives."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    def send(self, message: Message, data: Data | None = None) -> None:
        """Send it and its data: uint8, [num_bytes]. Returns when the system has taken them. Raises
        OSError when the other side is gone."""
        text = json.dumps(message).encode()
        self._send(_HEAD.pack(len(text), 0 if data is None else len(data)) + text, data)

    def receive(self, most_data: int, most_bytes: int = MOST_BYTES) -> tuple[Message, Data | None]:
        """The next message, of at most most_bytes, and its data if it has any, of at most most_data.

        Raises EOFError when the other side is gone, OSError if the connection breaks, and ValueError for
        what is no message, after which the connection is of no use.
        """
        raise NotImplementedError

    def within(self, seconds: float | None) -> None:
        """How long a single send or receive may wait; then it raises OSError. None: for ever."""
        self._socket.settimeout(seconds)

    def end(self) -> None:
        """End the connection. Threads that wait in `send` or `receive` wake up."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give the socket back, when no thread uses it any more."""
        self._socket.close()

    def _send(self, head: bytes, data: Data | None) -> None:
        raise NotImplementedError

    def _sizes(self, head: bytes, most_data: int, most_bytes: int) -> tuple[int, int]:
        """Bytes of a message and of its data. Raises ValueError for too many, before they are read."""
        length, data_length = _HEAD.unpack(head)
        if length > most_bytes:
            raise ValueError(f"it has {length:,} bytes, and may have {most_bytes:,}")
        if data_length > most_data:
            raise ValueError(f"it has {data_length:,} bytes of blocks, and may have {most_data:,}")
        return length, data_length

    def _message(self, length: int) -> Message:
        try:
            message = json.loads(self._exactly(length))
        except RecursionError:
            raise ValueError("a message is nested too deeply") from None
        if not isinstance(message, dict):
            raise ValueError("a message must be an object")
        return message

    def _exactly(self, count: int) -> bytes:
        """As many bytes; memory is taken as they come."""
        data = bytearray()
        while len(data) < count:
            piece = self._socket.recv(min(1 << 20, count - len(data)))
            if not piece:
                raise EOFError
            data += piece
        return bytes(data)


class StreamWire(Wire):
    """Data follows its message."""

    def _send(self, head: bytes, data: Data | None) -> None:
        self._socket.sendall(head)
        if data is not None:
            self._socket.sendall(data.data)

    def receive(self, most_data: int, most_bytes: int = MOST_BYTES) -> tuple[Message, Data | None]:
        length, data_length = self._sizes(self._exactly(_HEAD.size), most_data, most_bytes)
        message = self._message(length)
        if not data_length:
            return message, None
        data = np.empty(data_length, dtype=np.uint8)
        view, filled = data.data, 0
        while filled < data_length:
            count = self._socket.recv_into(view[filled:])
            if not count:
                raise EOFError
            filled += count
        return message, data


class MemoryWire(Wire):
    """Data is an open file of shared memory, which travels beside its message."""

    def _send(self, head: bytes, data: Data | None) -> None:
        if data is None:
            self._socket.sendall(head)
            return
        file = shared(data)
        try:
            # The kernel may take a part of a long message; the file goes with its first byte.
            sent = socket.send_fds(self._socket, [head], [file])
            self._socket.sendall(head[sent:])
        finally:
            os.close(file)

    def receive(self, most_data: int, most_bytes: int = MOST_BYTES) -> tuple[Message, Data | None]:
        head, files, _, _ = socket.recv_fds(self._socket, _HEAD.size, 1)
        try:
            if not head:
                raise EOFError
            head += self._exactly(_HEAD.size - len(head))
            length, data_length = self._sizes(head, most_data, most_bytes)
            message = self._message(length)
            if not data_length:
                return message, None
            if not files:
                raise ValueError("blocks came without the memory that holds them")
            return message, mapped(files[0], data_length)
        finally:
            for file in files:
                os.close(file)


def shared(data: Data) -> int:
    """An open file of shared memory with this in it. Raises OSError if there is no memory for it."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("yaie-blocks", os.MFD_CLOEXEC)
    else:  # a file without a name, where the system has no memory of that kind
        with tempfile.TemporaryFile() as temporary:
            file = os.dup(temporary.fileno())
    try:
        with os.fdopen(os.dup(file), "wb") as writer:
            writer.write(data.data)
    except BaseException:
        os.close(file)
        raise
    return file


def mapped(file: int, num_bytes: int) -> Data:
    """What such a file holds: uint8, [num_bytes]. Memory is taken when it is written to. Raises
    ValueError if it is not as long, OSError if it cannot be mapped."""
    if os.fstat(file).st_size != num_bytes:
        raise ValueError("the file is not as long as the message says")
    memory = mmap.mmap(file, num_bytes, access=mmap.ACCESS_COPY)
    return np.frombuffer(memory, dtype=np.uint8)
