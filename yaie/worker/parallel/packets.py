"""Bytes of any length over a process group, whose ranks must know the size of what they receive.

A message is a packet of FIRST_BYTES, which begins with the message's length, and a second one if it is
longer than that. Most steps fit into the first.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

FIRST_BYTES = 4096
LENGTH_BYTES = 8
MOST_BYTES = 1 << 30
"""Of a message: many times the largest step. Memory is taken before it is known who has sent it."""


def packets(data: bytes) -> Iterator[Tensor]:
    """What to send of a message: one or two tensors uint8 [bytes]. Raises ValueError for a message that
    is too long."""
    _expect_length(len(data))
    first = bytearray(FIRST_BYTES)
    held = FIRST_BYTES - LENGTH_BYTES
    first[:LENGTH_BYTES] = len(data).to_bytes(LENGTH_BYTES, "little")
    first[LENGTH_BYTES : LENGTH_BYTES + len(data[:held])] = data[:held]
    yield torch.frombuffer(first, dtype=torch.uint8)
    if len(data) > held:
        yield torch.frombuffer(bytearray(data[held:]), dtype=torch.uint8)


def message(receive: Callable[[Tensor], None]) -> bytearray:
    """A message. receive: fills a tensor uint8 [bytes] with the next packet. Raises ValueError if it is
    said to be too long."""
    first = bytearray(FIRST_BYTES)
    receive(torch.frombuffer(first, dtype=torch.uint8))
    length = int.from_bytes(first[:LENGTH_BYTES], "little")
    _expect_length(length)
    data = first[LENGTH_BYTES : LENGTH_BYTES + length]
    if length > len(data):
        rest = bytearray(length - len(data))
        receive(torch.frombuffer(rest, dtype=torch.uint8))
        data += rest
    return data


def _expect_length(length: int) -> None:
    if length > MOST_BYTES:
        raise ValueError(
            f"a message between ranks has {length:,} bytes, and may have {MOST_BYTES:,}"
        )
