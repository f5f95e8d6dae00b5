"""Which replica has seen which beginnings of prompts: chained hashes of chunks, forgotten by least use.

A chunk's hash covers all chunks before it, so one hash stands for a whole beginning, and a replica's
memory is a set of hashes. `tests/cluster/naive_prefixes.py` keeps the beginnings and must agree.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Collection, Container, Sequence

CHUNK = 64
"""Bytes of text in a chunk: about a block of 16 tokens of English."""
MOST_CHUNKS = 2048
"""Of a prompt, that are looked at: 128 KiB. Prompts that share so much go the same way in any case."""
HASH_BYTES = 8
CAPACITY = 1 << 18
"""Beginnings that are remembered of a replica: those of 16 MiB of different text."""


def chain(text: bytes) -> tuple[bytes, ...]:
    """One hash for each beginning of `text` that is a whole number of chunks, the shortest first.

    What is left over at the end counts for nothing, and neither does what follows MOST_CHUNKS.
    """
    hashes, last = [], b""
    for end in range(CHUNK, min(len(text), CHUNK * MOST_CHUNKS) + 1, CHUNK):
        last = hashlib.blake2b(last + text[end - CHUNK : end], digest_size=HASH_BYTES).digest()
        hashes.append(last)
    return tuple(hashes)


class PrefixIndex:
    """The beginnings that each replica was sent lately.

    A replica is named by a string. What was used longest ago is forgotten first, and of one prompt the
    longest beginning before the shorter ones, so a remembered beginning has all its own beginnings.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        """capacity: beginnings of a replica, at most. Raises ValueError below 1."""
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, got {capacity}")
        self._capacity = capacity
        self._seen: dict[str, OrderedDict[bytes, None]] = {}

    def add(self, replica: str, beginnings: Sequence[bytes]) -> None:
        """The replica was sent a prompt with these beginnings (`chain`)."""
        seen = self._seen.setdefault(replica, OrderedDict())
        for one in reversed(beginnings):
            seen[one] = None
            seen.move_to_end(one)
        while len(seen) > self._capacity:
            seen.popitem(last=False)

    def match(self, replica: str, beginnings: Sequence[bytes]) -> int:
        """How many chunks of such a prompt the replica has seen."""
        seen: Container[bytes] = self._seen.get(replica, ())
        low, high = 0, len(beginnings)
        while low < high:  # the first that is missing: beyond it all are
            middle = (low + high) // 2
            low, high = (middle + 1, high) if beginnings[middle] in seen else (low, middle)
        return low

    def keep(self, replicas: Collection[str]) -> None:
        """Forget all other replicas."""
        for gone in self._seen.keys() - set(replicas):
            del self._seen[gone]

    def check(self) -> None:
        """Raise AssertionError if a replica remembers more than it may."""
        for replica, seen in self._seen.items():
            assert len(seen) <= self._capacity, f"{replica} has {len(seen)} beginnings"
