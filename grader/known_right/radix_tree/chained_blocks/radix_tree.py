"""A prefix cache without a tree of nodes: every block is an entry, in one dictionary.

Different from the reference: an entry is found by its parent entry and its block's tokens, as vLLM finds
blocks by a hash chained from block to block. Nothing is compressed, so nothing is ever split: a handle
is the last entry of a match, and how many entries its "node" spans. Locks and last uses are kept for
each block, and so is the queue of those that may go.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from yaie.core.errors import InvariantError


@dataclass(slots=True, eq=False)
class Entry:
    """One block. key: what it is filed under. num_children: entries that name it as their parent."""

    block: int
    parent: "Entry | None"
    tokens: tuple[int, ...]
    locks: int = 0
    last_used: int = 0
    num_children: int = 0

    @property
    def key(self) -> tuple[int, tuple[int, ...]]:
        return id(self.parent), self.tokens

    @property
    def may_go(self) -> bool:
        return not self.locks and not self.num_children


@dataclass(slots=True, eq=False)
class Handle:
    """The node that ends at `end`, None for the root, and has `length` blocks."""

    end: Entry | None
    length: int


class RadixTree:
    """See `yaie.core.contracts.RadixTree`."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._entries: dict[tuple[int, tuple[int, ...]], Entry] = {}
        self._queue: list[tuple[int, int, Entry]] = []  # perhaps out of date, as in node.py
        self._pushed = 0
        self._num_locked = 0
        self._tick = 0

    @property
    def num_blocks(self) -> int:
        """Entries."""
        return len(self._entries)

    @property
    def num_evictable(self) -> int:
        """Entries without a lock."""
        return len(self._entries) - self._num_locked

    def peek(self, token_ids: list[int], max_blocks: int) -> list[int]:
        """Blocks of the longest cached prefix, at most `max_blocks`. Changes nothing."""
        return [entry.block for entry in self._chain(token_ids, max_blocks)]

    def match_prefix(self, token_ids: list[int], max_blocks: int) -> tuple[list[int], Handle]:
        """The same, used now, with a handle for the last of them."""
        self._tick += 1
        chain = list(self._chain(token_ids, max_blocks))
        for entry in chain:
            entry.last_used = self._tick
        if chain:
            self._push(chain[-1])
        return [entry.block for entry in chain], Handle(chain[-1] if chain else None, len(chain))

    def insert(self, token_ids: list[int], block_ids: Sequence[int]) -> tuple[int, Handle]:
        """Hang an entry for each block that is not there under the one before it."""
        matched, handle = self.match_prefix(token_ids, len(block_ids))
        end = handle.end
        for index in range(len(matched), len(block_ids)):
            entry = Entry(block_ids[index], end, self._tokens(token_ids, index))
            entry.last_used = self._tick
            self._entries[entry.key] = entry
            if end is not None:
                end.num_children += 1
            end = entry
        fresh = len(block_ids) - len(matched)
        if fresh and end is not None:
            self._push(end)
        return len(matched), Handle(end, fresh or len(matched))

    def split(self, node: Handle, num_blocks: int) -> Handle:
        """A handle for the upper part of what `node` spans, which spans the rest from now on."""
        upper = Handle(node.end, num_blocks)
        for _ in range(node.length - num_blocks):
            assert upper.end is not None
            upper.end = upper.end.parent
        node.length -= num_blocks
        return upper

    def lock(self, node: Handle) -> None:
        """One more lock on every block from the end to the first."""
        for entry in _upwards(node.end):
            self._num_locked += not entry.locks
            entry.locks += 1

    def unlock(self, node: Handle) -> None:
        """One less."""
        for entry in _upwards(node.end):
            entry.locks -= 1
            self._num_locked -= not entry.locks
        if node.end is not None:
            self._push(node.end)

    def path_blocks(self, node: Handle) -> list[int]:
        """The blocks from the first down to the end of `node`."""
        return [entry.block for entry in _upwards(node.end)][::-1]

    def evict(self, num_blocks: int) -> list[int]:
        """Remove ends of chains one by one, the least recently used first."""
        evicted: list[int] = []
        while self._queue and len(evicted) < num_blocks:
            last_used, _, oldest = heapq.heappop(self._queue)
            is_filed = self._entries.get(oldest.key) is oldest
            if not is_filed or not oldest.may_go or oldest.last_used != last_used:
                continue
            del self._entries[oldest.key]
            evicted.append(oldest.block)
            if oldest.parent is not None:
                oldest.parent.num_children -= 1
                self._push(oldest.parent)
        return evicted

    def _push(self, entry: Entry) -> None:
        """An entry may go, or may have a new last use."""
        if entry.may_go:
            self._pushed += 1
            heapq.heappush(self._queue, (entry.last_used, self._pushed, entry))

    def all_blocks(self) -> list[int]:
        """Every block."""
        return [entry.block for entry in self._entries.values()]

    def check(self) -> None:
        """Raise InvariantError unless keys, children and locks agree."""
        children = dict.fromkeys(self._entries.values(), 0)
        for key, entry in self._entries.items():
            if key != entry.key or len(entry.tokens) != self.block_size:
                raise InvariantError(f"block {entry.block} is filed under the wrong key")
            if entry.parent is not None:
                children[entry.parent] += 1
                if entry.locks > entry.parent.locks:
                    raise InvariantError(f"block {entry.block} is locked, but not its parent")
        if any(entry.num_children != count for entry, count in children.items()):
            raise InvariantError("children are counted wrong")
        if len(set(self.all_blocks())) != len(self._entries):
            raise InvariantError("a block appears twice")
        if sum(entry.locks > 0 for entry in children) != self._num_locked:
            raise InvariantError("locked blocks are counted wrong")

    def _chain(self, token_ids: list[int], max_blocks: int) -> Iterator[Entry]:
        """The entries of the longest cached prefix."""
        end: Entry | None = None
        for index in range(min(max_blocks, len(token_ids) // self.block_size)):
            end = self._entries.get((id(end), self._tokens(token_ids, index)))
            if end is None:
                return
            yield end

    def _tokens(self, token_ids: list[int], index: int) -> tuple[int, ...]:
        return tuple(token_ids[index * self.block_size : (index + 1) * self.block_size])


def _upwards(entry: Entry | None) -> Iterator[Entry]:
    """An entry and all before it."""
    while entry is not None:
        yield entry
        entry = entry.parent
