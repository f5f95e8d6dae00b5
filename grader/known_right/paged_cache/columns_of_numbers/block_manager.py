"""Another right block manager: counts and free blocks are NumPy arrays.

References are changed for all blocks of a call at once. Blocks that are free stand at the front of an
array, from which the last is taken.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from yaie.core.errors import BlockStateError, InvariantError, OutOfBlocksError

Pairs = list[tuple[int, int]]
Numbers = NDArray[np.int64]


class _Free:
    """The free blocks of a pool: the first `count` of `stack`."""

    def __init__(self, size: int) -> None:
        self.stack: Numbers = np.arange(size - 1, -1, -1)
        self.count = size

    def take(self, number: int) -> list[int]:
        if number > self.count:
            raise OutOfBlocksError(f"{self.count} blocks are free, not {number}")
        taken: list[int] = self.stack[self.count - number : self.count][::-1].tolist()
        self.count -= number
        return taken

    def put(self, blocks: Numbers) -> None:
        self.stack[self.count : self.count + len(blocks)] = blocks
        self.count += len(blocks)


class _Table(list[int]):
    """Device blocks of a request."""

    __slots__ = ()


class BlockManager:
    """See `yaie.core.contracts.BlockManager`."""

    def __init__(self, num_blocks: int, block_size: int, num_host_blocks: int = 0) -> None:
        self.num_blocks, self.block_size = num_blocks, block_size
        self.num_host_blocks = num_host_blocks
        self._free, self._host = _Free(num_blocks), _Free(num_host_blocks)
        self._in_tables = np.zeros(num_blocks, dtype=np.int64)
        self._held = np.zeros(num_blocks, dtype=np.int64)
        self._tables: dict[str, _Table] = {}
        self._away: dict[str, list[int]] = {}

    @property
    def num_free(self) -> int:
        """Free device blocks."""
        return self._free.count

    @property
    def num_free_host(self) -> int:
        """Free host blocks."""
        return self._host.count

    def _add(self, column: Numbers, blocks: Sequence[int], by: int) -> None:
        np.add.at(column, np.asarray(blocks, dtype=np.int64), by)

    def _must_be_held(self, blocks: Sequence[int]) -> None:
        index = np.asarray(blocks, dtype=np.int64)
        free = index[(self._in_tables[index] + self._held[index]) == 0]
        if len(free):
            raise BlockStateError(f"blocks {free.tolist()} are free")

    def _let_go(self, column: Numbers, blocks: Sequence[int]) -> None:
        """One reference less each; whatever has none then is free."""
        self._add(column, blocks, -1)
        seen = np.array(list(dict.fromkeys(reversed(blocks))), dtype=np.int64)
        self._free.put(seen[(self._in_tables[seen] + self._held[seen]) == 0])

    def allocate(self, request_id: str, num_blocks: int) -> list[int]:
        """Append fresh blocks to a table."""
        fresh = self._free.take(num_blocks)
        self._add(self._in_tables, fresh, 1)
        self._tables.setdefault(request_id, _Table()).extend(fresh)
        return fresh

    def free(self, request_id: str) -> None:
        """Drop a table."""
        try:
            table = self._tables.pop(request_id)
        except KeyError:
            raise BlockStateError(f"{request_id} has no table") from None
        self._let_go(self._in_tables, table)

    def get_physical_blocks(self, request_id: str) -> list[int]:
        """The table; an empty list that is nobody's if there is none."""
        return self._tables.get(request_id, _Table())

    def share(self, request_id: str, block_ids: Sequence[int]) -> None:
        """Append held blocks to a table."""
        self._must_be_held(block_ids)
        self._add(self._in_tables, block_ids, 1)
        self._tables.setdefault(request_id, _Table()).extend(block_ids)

    def hold(self, block_ids: Sequence[int]) -> None:
        """References outside of tables."""
        self._must_be_held(block_ids)
        self._add(self._held, block_ids, 1)

    def release(self, block_ids: Sequence[int]) -> None:
        """Give them back."""
        blocks, counts = np.unique(np.asarray(block_ids, dtype=np.int64), return_counts=True)
        if (missing := blocks[self._held[blocks] < counts]).size:
            raise BlockStateError(f"blocks {missing.tolist()} are not held that often")
        self._let_go(self._held, block_ids)

    def ref_count(self, block_id: int) -> int:
        """References to a block."""
        return int(self._in_tables[block_id] + self._held[block_id])

    def replace(self, request_id: str, index: int, block_ids: Sequence[int]) -> None:
        """Other blocks in a table, which is another object then."""
        self._must_be_held(block_ids)
        changed = _Table(self._tables[request_id])
        old = changed[index : index + len(block_ids)]
        changed[index : index + len(block_ids)] = block_ids
        self._tables[request_id] = changed
        self._add(self._in_tables, block_ids, 1)
        self._let_go(self._in_tables, old)

    def copy_on_write(self, request_id: str, index: int) -> tuple[int, int] | None:
        """A block of its own where others have the entry's too."""
        table = self._tables[request_id]
        old = table[index]
        if self.ref_count(old) < 2:
            return None
        (fresh,) = self._free.take(1)
        self._in_tables[[old, fresh]] += [-1, 1]
        self._tables[request_id] = _Table([*table[:index], fresh, *table[index + 1 :]])
        return old, fresh

    def swap_out(self, request_id: str) -> Pairs:
        """A table goes to the host."""
        table = self._tables[request_id]
        self._away[request_id] = self._host.take(len(table))
        self.free(request_id)
        return list(zip(table, self._away[request_id], strict=True))

    def swap_in(self, request_id: str, shared: Sequence[int] = ()) -> Pairs:
        """And comes back: room is asked for before what it shares is looked at."""
        away = self._away[request_id]
        if (wanted := len(away) - len(shared)) > self._free.count:
            raise OutOfBlocksError(f"{wanted} blocks wanted, {self._free.count} free")
        self.share(request_id, shared)
        fresh = self.allocate(request_id, wanted)
        self.discard_swapped(request_id)
        return list(zip(away[len(shared) :], fresh, strict=True))

    def discard_swapped(self, request_id: str) -> None:
        """Host blocks become free."""
        self._host.put(np.array(self._away.pop(request_id), dtype=np.int64)[::-1])

    def num_swapped_blocks(self, request_id: str) -> int:
        """How many host blocks a request has."""
        return len(self._away[request_id]) if request_id in self._away else 0

    def check(self) -> None:
        """Raise InvariantError unless tables, holds and free blocks add up."""
        entries = np.array([b for table in self._tables.values() for b in table], dtype=np.int64)
        counted = np.bincount(entries, minlength=self.num_blocks)
        for block in (counted != self._in_tables).nonzero()[0]:
            raise InvariantError(
                f"block {block} is in {counted[block]} tables and counts {self._in_tables[block]}"
            )
        unused = (self._in_tables + self._held == 0).nonzero()[0]
        on_host = [block for blocks in self._away.values() for block in blocks]
        rest = sorted({*range(self.num_host_blocks)} - {*on_host})
        for name, free, right in (("device", self._free, unused), ("host", self._host, rest)):
            if sorted(free.stack[: free.count].tolist()) != list(right):
                raise InvariantError(f"the free {name} blocks are not {list(right)}")
        if len(on_host) != len(set(on_host)):
            raise InvariantError("a host block is in two tables")
