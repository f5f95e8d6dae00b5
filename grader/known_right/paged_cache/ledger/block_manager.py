"""Who holds which block, as a ledger: for each block the names of its holders.

Different from the reference: references are not numbers but a count for each holder, the radix tree
among them; the free blocks are a set, of which the lowest go first; a copy on write, a replacement and a
swap are all "these holders change here", written down in one place. swap_in asks for room
before it looks at what it shares: of two errors the other one comes first.
"""

import heapq
from collections import Counter
from collections.abc import Sequence

from yaie.core.errors import BlockStateError, InvariantError, OutOfBlocksError

Pairs = list[tuple[int, int]]
OUTSIDE = None
"""The holder of what stands in no table: a name that no request has."""


class BlockManager:
    """See `yaie.core.contracts.BlockManager`."""

    def __init__(self, num_blocks: int, block_size: int, num_host_blocks: int = 0) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.num_host_blocks = num_host_blocks
        self._holders: dict[int, Counter[str | None]] = {}  # of the blocks that are not free
        self._free = set(range(num_blocks))
        self._free_host = set(range(num_host_blocks))
        self._tables: dict[str, list[int]] = {}
        self._host_tables: dict[str, tuple[int, ...]] = {}

    @property
    def num_free(self) -> int:
        """Device blocks that nobody holds."""
        return len(self._free)

    @property
    def num_free_host(self) -> int:
        """Host blocks that nobody holds."""
        return len(self._free_host)

    def _enter(self, holder: str | None, block_ids: Sequence[int]) -> None:
        """The holder has one more reference to each block."""
        for block in block_ids:
            self._free.discard(block)
            self._holders.setdefault(block, Counter())[holder] += 1

    def _strike(self, holder: str | None, block_ids: Sequence[int]) -> None:
        """The holder has one reference less to each block."""
        for block in block_ids:
            names = self._holders[block]
            names[holder] -= 1
            if not names[holder]:
                del names[holder]
            if not names:
                del self._holders[block]
                self._free.add(block)

    def _must_be_in_use(self, block_ids: Sequence[int]) -> None:
        if unused := self._free.intersection(block_ids):
            raise BlockStateError(f"blocks {sorted(unused)} are free")

    def allocate(self, request_id: str, num_blocks: int) -> list[int]:
        """Append fresh blocks to the request's table; OutOfBlocksError if too few are free."""
        fresh = _lowest(num_blocks, self._free)
        self._enter(request_id, fresh)
        self._tables.setdefault(request_id, []).extend(fresh)
        return fresh

    def free(self, request_id: str) -> None:
        """Drop the request's table; BlockStateError if it has none."""
        table = self._tables.pop(request_id, None)
        if table is None:
            raise BlockStateError(f"request {request_id!r} has no table")
        self._strike(request_id, table)

    def get_physical_blocks(self, request_id: str) -> list[int]:
        """The request's block table; [] if it has none."""
        return self._tables.get(request_id, [])

    def share(self, request_id: str, block_ids: Sequence[int]) -> None:
        """Append blocks in use to the request's table; BlockStateError if one is free."""
        self._must_be_in_use(block_ids)
        self._enter(request_id, block_ids)
        self._tables.setdefault(request_id, []).extend(block_ids)

    def hold(self, block_ids: Sequence[int]) -> None:
        """A reference from outside all tables; BlockStateError if a block is free."""
        self._must_be_in_use(block_ids)
        self._enter(OUTSIDE, block_ids)

    def release(self, block_ids: Sequence[int]) -> None:
        """Give back what `hold` took; BlockStateError on more than that."""
        for block, count in Counter(block_ids).items():
            if self._holders.get(block, Counter())[OUTSIDE] < count:
                raise BlockStateError(f"block {block} is not held from outside so often")
        self._strike(OUTSIDE, block_ids)

    def ref_count(self, block_id: int) -> int:
        """References to a device block; 0 if free."""
        return self._holders[block_id].total() if block_id in self._holders else 0

    def replace(self, request_id: str, index: int, block_ids: Sequence[int]) -> None:
        """Point len(block_ids) entries of a table, from `index` on, at other blocks in use."""
        self._must_be_in_use(block_ids)
        self._enter(request_id, block_ids)
        table = self._tables[request_id].copy()
        old, table[index : index + len(block_ids)] = table[index:][: len(block_ids)], block_ids
        self._tables[request_id] = table
        self._strike(request_id, old)

    def copy_on_write(self, request_id: str, index: int) -> tuple[int, int] | None:
        """(old, fresh) if somebody else reads entry `index`; OutOfBlocksError if none is free."""
        old = self._tables[request_id][index]
        if self.ref_count(old) == 1:
            return None
        fresh = _lowest(1, self._free)
        self._enter(request_id, fresh)
        self._strike(request_id, [old])
        before, after = self._tables[request_id][:index], self._tables[request_id][index + 1 :]
        self._tables[request_id] = before + fresh + after
        return old, fresh[0]

    def swap_out(self, request_id: str) -> Pairs:
        """Move a table to the host; OutOfBlocksError if it does not fit there."""
        there = _lowest(len(self._tables[request_id]), self._free_host)
        self._free_host -= set(there)
        self._host_tables[request_id] = tuple(there)
        table = self._tables[request_id]
        self.free(request_id)
        return list(zip(table, there, strict=True))

    def swap_in(self, request_id: str, shared: Sequence[int] = ()) -> Pairs:
        """Bring a table back, but for its first entries, which are `shared`."""
        to_copy = self._host_tables[request_id][len(shared) :]
        fresh = _lowest(len(to_copy), self._free)
        self._must_be_in_use(shared)
        self._tables[request_id] = [*shared, *fresh]
        self._enter(request_id, self._tables[request_id])
        self.discard_swapped(request_id)
        return list(zip(to_copy, fresh, strict=True))

    def discard_swapped(self, request_id: str) -> None:
        """Free the host blocks of a swapped-out request."""
        self._free_host.update(self._host_tables.pop(request_id))

    def num_swapped_blocks(self, request_id: str) -> int:
        """Length of the request's table on the host."""
        return len(self._host_tables.get(request_id, ()))

    def check(self) -> None:
        """Raise InvariantError unless ledger, tables and free blocks agree."""
        if self._free | set(self._holders) != set(range(self.num_blocks)):
            raise InvariantError("a block is neither free nor held")
        if in_both := self._free & set(self._holders):
            raise InvariantError(f"blocks {sorted(in_both)} are free and held at once")
        for block, names in self._holders.items():
            for name in (+names).keys() - {OUTSIDE}:
                if name is None or self._tables.get(name, []).count(block) != names[name]:
                    raise InvariantError(f"block {block} and the table of {name} disagree")
        entries = sum(map(len, self._tables.values()))
        known = sum(names.total() - names[OUTSIDE] for names in self._holders.values())
        if entries != known:
            raise InvariantError(f"{entries} entries in tables, {known} in the ledger")
        hosts = sorted([*self._free_host, *(b for t in self._host_tables.values() for b in t)])
        if hosts != list(range(self.num_host_blocks)):
            raise InvariantError("a host block is lost, or has two owners")


def _lowest(count: int, free: set[int]) -> list[int]:
    if count > len(free):
        raise OutOfBlocksError(f"{count} blocks wanted, {len(free)} free")
    return heapq.nsmallest(count, free)
