"""Messages over a connected stream socket, and keys and values with them.

    bytes    4                 8              32, or none   message             data
    what     message's bytes   data's bytes   proof         one of `messages`   keys and values, or none

Between two servers that know a secret each message has a proof (`core.seals`), which covers everything
that is sent through the socket.

Between processes of one host the data is an open file of shared memory without a name (`memory`), which
the kernel passes on: nothing is copied through the socket, and the kernel frees the memory when no
process has it open. Between hosts the data follows the message over the same TCP connection.

Why not torch.distributed, which moves tensors between ranks? A group of gloo or NCCL has members that
are named when it is made. When one dies, every later send in the group raises (gloo: "Connection closed
by peer"), and a new process cannot take the dead one's rank, so a new group and a new meeting point are
needed. For bytes in host memory gloo is TCP
as well. NCCL would save the copies through host memory on both sides, and is not used here.
"""

import contextlib
import os
import socket
import struct
import time

import numpy as np

from yaie.engine.handover.memory import Data, mapped, shared
from yaie.engine.handover.messages import MESSAGES, Message
from yaie.system.seals import TAG_BYTES, Seal

MOST_BYTES = 64 << 20
"""Of a message without its data: some millions of tokens."""
_HEAD = struct.Struct("!IQ")


class Wire:
    """One connection. One thread may send while another receives."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._end_of_time: float | None = None
        self._says: Seal | None = None
        self._hears: Seal | None = None

    def send(self, message: Message, data: Data | None = None) -> None:
        """Send it and its data: uint8, [num_bytes]. Returns when the system has taken them. Raises
        OSError when the other side is gone."""
        text = MESSAGES.encode(message)
        head = _HEAD.pack(len(text), 0 if data is None else len(data))
        proof = b"" if self._says is None else self._says.proof(*self._proven(head, text, data))
        self._send(head + proof + text, data)

    def receive(self, most_data: int, most_bytes: int = MOST_BYTES) -> tuple[Message, Data | None]:
        """The next message, of at most most_bytes, and its data if it has any, of at most most_data.

        Raises EOFError when the other side is gone, OSError if the connection breaks, and ValueError for
        what is no message or has no proof, after which the connection is of no use.
        """
        raise NotImplementedError

    def within(self, seconds: float | None) -> None:
        """How long all that is sent and received from now on may take; then it raises OSError. None: for
        ever."""
        self._end_of_time = None if seconds is None else time.monotonic() + seconds
        self._socket.settimeout(seconds)

    def seal(self, says: Seal, hears: Seal) -> None:
        """From here on each message has a proof, each way with its own."""
        self._says, self._hears = says, hears

    def end(self) -> None:
        """End the connection. Threads that wait in `send` or `receive` wake up."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give the socket back, when no thread uses it any more."""
        self._socket.close()

    def _send(self, head: bytes, data: Data | None) -> None:
        raise NotImplementedError

    def _proven(self, head: bytes, text: bytes, data: Data | None) -> list[bytes | memoryview]:
        """What a proof covers: all that goes through the socket."""
        return [head, text]

    def _in_time(self) -> None:
        """Before each call of the socket: it may wait for what is left of `within`. Raises OSError."""
        if self._end_of_time is not None:
            left = self._end_of_time - time.monotonic()
            if left <= 0:
                raise TimeoutError("it took too long")
            self._socket.settimeout(left)

    def _sizes(self, head: bytes, most_data: int, most_bytes: int) -> tuple[int, int]:
        """Bytes of a message and of its data. Raises ValueError for too many, before they are read."""
        length, data_length = _HEAD.unpack(head)
        if length > most_bytes:
            raise ValueError(f"it has {length:,} bytes, and may have {most_bytes:,}")
        if data_length > most_data:
            raise ValueError(f"it has {data_length:,} bytes of blocks, and may have {most_data:,}")
        return length, data_length

    def _proof(self) -> bytes:
        return b"" if self._hears is None else self._exactly(TAG_BYTES)

    def _message(self, proof: bytes, head: bytes, text: bytes, data: Data | None) -> Message:
        """What has arrived. Raises ValueError."""
        if self._hears is not None:
            self._hears.check(proof, *self._proven(head, text, data))
        message: Message = MESSAGES.decode(text)
        return message

    def _exactly(self, count: int) -> bytes:
        """As many bytes; memory is taken as they come."""
        data = bytearray()
        while len(data) < count:
            self._in_time()
            piece = self._socket.recv(min(1 << 20, count - len(data)))
            if not piece:
                raise EOFError
            data += piece
        return bytes(data)


class StreamWire(Wire):
    """Data follows its message."""

    def _send(self, head: bytes, data: Data | None) -> None:
        self._in_time()
        self._socket.sendall(head)
        if data is not None:
            self._in_time()
            self._socket.sendall(data.data)

    def _proven(self, head: bytes, text: bytes, data: Data | None) -> list[bytes | memoryview]:
        return [head, text] if data is None else [head, text, data.data]

    def receive(self, most_data: int, most_bytes: int = MOST_BYTES) -> tuple[Message, Data | None]:
        head = self._exactly(_HEAD.size)
        length, data_length = self._sizes(head, most_data, most_bytes)
        proof, text = self._proof(), self._exactly(length)
        data = self._data(data_length) if data_length else None
        return self._message(proof, head, text, data), data

    def _data(self, length: int) -> Data:
        data = np.empty(length, dtype=np.uint8)
        view, filled = data.data, 0
        while filled < length:
            self._in_time()
            count = self._socket.recv_into(view[filled:])
            if not count:
                raise EOFError
            filled += count
        return data


class MemoryWire(Wire):
    """Data is an open file of shared memory, which travels beside its message."""

    def _send(self, head: bytes, data: Data | None) -> None:
        self._in_time()
        if data is None:
            self._socket.sendall(head)
            return
        file = shared(data)
        try:
            # The kernel may take a part of a long message; the file goes with its first byte.
            sent = socket.send_fds(self._socket, [head], [file])
            self._in_time()
            self._socket.sendall(head[sent:])
        finally:
            os.close(file)

    def receive(self, most_data: int, most_bytes: int = MOST_BYTES) -> tuple[Message, Data | None]:
        self._in_time()
        head, files, _, _ = socket.recv_fds(self._socket, _HEAD.size, 1)
        try:
            if not head:
                raise EOFError
            head += self._exactly(_HEAD.size - len(head))
            length, data_length = self._sizes(head, most_data, most_bytes)
            proof, text = self._proof(), self._exactly(length)
            message = self._message(proof, head, text, None)
            if not data_length:
                return message, None
            if not files:
                raise ValueError("blocks came without the memory that holds them")
            return message, mapped(files[0], data_length)
        finally:
            for file in files:
                os.close(file)
