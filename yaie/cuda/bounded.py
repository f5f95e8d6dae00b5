"""A command whose messages are read within bounds: a compiler repeats what a file makes it repeat."""

import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

MOST = 2**20
"""Bytes that are kept of each stream, half of them from its beginning and half from its end."""


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended, and what it said, as UTF-8 as far as it is."""

    returncode: int
    stdout: str
    stderr: str


def run_bounded(
    command: Sequence[str],
    *,
    timeout: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    most: int = MOST,
) -> Ran:
    """Like `subprocess.run` with `capture_output`, but memory does not grow with the output, and there
    is no input: a source file may include /dev/stdin.

    Raises OSError if it cannot be started, and subprocess.TimeoutExpired.
    """
    deadline = time.monotonic() + timeout
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cwd,
        env=env,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    streams = (_Ends(process.stdout, most), _Ends(process.stderr, most))
    try:
        process.wait(timeout)
        for stream in streams:
            stream.wait(max(1.0, deadline - time.monotonic()))
    except BaseException:
        process.kill()
        process.wait()
        raise
    return Ran(process.returncode, *(stream.text() for stream in streams))


class _Ends:
    """Reads a stream to its end, in a thread, and keeps both ends of it. The thread closes the stream:
    what the command has started may hold it open for longer than anybody waits."""

    def __init__(self, stream: IO[bytes], most: int) -> None:
        self._half = most // 2
        self._head, self._tail, self._left = bytearray(), bytearray(), 0
        self._thread = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self._thread.start()

    def _read(self, stream: IO[bytes]) -> None:
        with stream:
            while chunk := stream.read1(65_536):  # type: ignore[attr-defined]
                room = self._half - len(self._head)
                self._head += chunk[:room]
                self._tail += chunk[room:]
                self._left += max(0, len(self._tail) - self._half)
                del self._tail[: -self._half]

    def wait(self, seconds: float) -> None:
        self._thread.join(seconds)

    def text(self) -> str:
        cut = f"\n... {self._left} bytes left out ...\n".encode() if self._left else b""
        return (bytes(self._head) + cut + bytes(self._tail)).decode("utf-8", "replace")
