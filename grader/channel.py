"""What a worker says, read without growing with it: its results, and the end of what it prints.

Both come from a process that runs a learner's code, which may write without end and without a newline.
"""

import json
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

KEPT_OUTPUT = 16_384
MOST_LINE = 2**21
"""Bytes of a result. The recorder's are shorter: `Explanation.bounded`."""
MOST_TOLD = 2**25
"""Bytes of results in all; a worker that writes more is no recorder any more, and is ended."""
CHUNK = 65_536


@dataclass(slots=True)
class Heard:
    """How many bytes there were. printed: of output. told: on the channel for results. dropped: of
    these, in lines that are no result."""

    printed: int = 0
    told: int = 0
    dropped: int = 0


def read_events(
    channel: socket.socket, take: Callable[[dict[str, Any]], None], heard: Heard
) -> None:
    """Hand over each line of JSON. A line beyond MOST_LINE is dropped as it comes."""
    line = bytearray()
    is_too_long = False
    with channel, suppress(OSError):  # the other end may be reset
        while chunk := channel.recv(CHUNK):
            heard.told += len(chunk)
            if heard.told > MOST_TOLD:
                heard.dropped += len(chunk)
                line.clear()
                is_too_long = True
                continue
            *ended, rest = chunk.split(b"\n")
            for piece in ended:
                if is_too_long or len(line) + len(piece) > MOST_LINE:
                    heard.dropped += len(line) + len(piece)
                else:
                    line += piece
                    heard.dropped += 0 if _hand_over(line, take) else len(line)
                line.clear()
                is_too_long = False
            if is_too_long or len(line) + len(rest) > MOST_LINE:
                heard.dropped += len(line) + len(rest)
                line.clear()
                is_too_long = True
            else:
                line += rest


def _hand_over(line: bytearray, take: Callable[[dict[str, Any]], None]) -> bool:
    """Whether it was an event, or nothing. The part may write here too: anything may be wrong with it,
    and RecursionError is no ValueError."""
    if not line:
        return True
    try:
        take(json.loads(line))
    except Exception:  # noqa: BLE001
        return False
    return True


def keep_tail(pipe: IO[bytes], tail: bytearray, heard: Heard) -> None:
    """The last KEPT_OUTPUT bytes, until the other end is closed."""
    with pipe:
        while chunk := pipe.read1(CHUNK):  # type: ignore[attr-defined]
            heard.printed += len(chunk)
            tail += chunk
            del tail[:-KEPT_OUTPUT]
