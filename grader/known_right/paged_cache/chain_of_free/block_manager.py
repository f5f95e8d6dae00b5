"""Another right block manager: a free block says which one is free next, and nothing else lists them.

A block has one number: below zero, that is where the chain of free blocks goes on; above, its entries in
tables plus 2 ** 32 for each hold. The host is the same class again, whose tables are never shared.
"""

from collections.abc import Iterable, Sequence
from itertools import islice

from yaie.core.errors import BlockStateError, InvariantError, OutOfBlocksError

ENTRY, HOLD = 1, 1 << 32
END = -1


class _Pool:
    """Numbers of blocks. A free block's is -2 - next, or -1 for the last of the chain."""

    def __init__(self, size: int) -> None:
        self.state = [-3 - block for block in range(size - 1)] + [END] * (size > 0)
        self.first = 0 if size else None
        self.num_free = size

    def pop(self) -> int:
        """Take the first of the chain; it counts one entry."""
        block = self.first
        assert block is not None
        following = self.state[block]
        self.first = None if following == END else -2 - following
        self.state[block] = ENTRY
        self.num_free -= 1
        return block

    def drop(self, block: int, weight: int) -> None:
        """A reference less; without any the block becomes the first of the chain."""
        self.state[block] -= weight
        if self.state[block] == 0:
            self.state[block] = END if self.first is None else -2 - self.first
            self.first = block
            self.num_free += 1

    def chain(self) -> Iterable[int]:
        block = self.first
        while block is not None:
            yield block
            following = self.state[block]
            block = None if following == END else -2 - following

    def require(self, count: int) -> None:
        if count > self.num_free:
            raise OutOfBlocksError(f"{count} blocks wanted, {self.num_free} free")


class BlockManager:
    """See `yaie.core.contracts.BlockManager`."""

    def __init__(self, num_blocks: int, block_size: int, num_host_blocks: int = 0) -> None:
        self.block_size = block_size
        self._here, self._host = _Pool(num_blocks), _Pool(num_host_blocks)
        self._tables: dict[str, list[int]] = {}
        self._host_tables: dict[str, list[int]] = {}

    @property
    def num_blocks(self) -> int:
        """Blocks on the device."""
        return len(self._here.state)

    @property
    def num_host_blocks(self) -> int:
        """Blocks on the host."""
        return len(self._host.state)

    @property
    def num_free(self) -> int:
        """Free device blocks."""
        return self._here.num_free

    @property
    def num_free_host(self) -> int:
        """Free host blocks."""
        return self._host.num_free

    def _table(self, request_id: str) -> list[int]:
        if request_id not in self._tables:
            self._tables[request_id] = []
        return self._tables[request_id]

    def _refuse(self, block_ids: Sequence[int]) -> None:
        if any(self._here.state[block] < 0 for block in block_ids):
            raise BlockStateError("a block is free and has nothing to share")

    def allocate(self, request_id: str, num_blocks: int) -> list[int]:
        """From the front of the chain."""
        self._here.require(num_blocks)
        table = self._table(request_id)
        before = len(table)
        while len(table) < before + num_blocks:
            table.append(self._here.pop())
        return table[before:]

    def free(self, request_id: str) -> None:
        """From the last block on, so that the chain begins with the first."""
        if (table := self._tables.get(request_id)) is None:
            raise BlockStateError(f"no table of {request_id!r}")
        del self._tables[request_id]
        for block in table[::-1]:
            self._here.drop(block, ENTRY)

    def get_physical_blocks(self, request_id: str) -> list[int]:
        """A table, or []."""
        return self._tables.get(request_id) or self._tables.get(request_id, [])

    def share(self, request_id: str, block_ids: Sequence[int]) -> None:
        """An entry more for each."""
        self._refuse(block_ids)
        table = self._table(request_id)
        for block in block_ids:
            self._here.state[block] += ENTRY
            table.append(block)

    def hold(self, block_ids: Sequence[int]) -> None:
        """A hold more for each."""
        self._refuse(block_ids)
        for block in block_ids:
            self._here.state[block] += HOLD

    def release(self, block_ids: Sequence[int]) -> None:
        """One by one, taken back if one is not held."""
        done: list[int] = []
        for block in block_ids:
            if self._here.state[block] < HOLD:
                for earlier in done:
                    self._here.state[earlier] += HOLD
                raise BlockStateError(f"block {block} is not held")
            self._here.state[block] -= HOLD
            done.append(block)
        for block in dict.fromkeys(done):
            if self._here.state[block] == 0:
                self._here.drop(block, 0)

    def ref_count(self, block_id: int) -> int:
        """Entries and holds."""
        state = self._here.state[block_id]
        return 0 if state < 0 else state % HOLD + state // HOLD

    def replace(self, request_id: str, index: int, block_ids: Sequence[int]) -> None:
        """Entry by entry, in a copy."""
        self._refuse(block_ids)
        table = self._tables[request_id].copy()
        dropped = []
        for at, block in enumerate(block_ids, start=index):
            self._here.state[block] += ENTRY
            dropped.append(table[at])
            table[at] = block
        self._tables[request_id] = table
        for block in dropped:
            self._here.drop(block, ENTRY)

    def copy_on_write(self, request_id: str, index: int) -> tuple[int, int] | None:
        """Nothing if the one entry is all."""
        table = self._tables[request_id]
        old = table[index]
        if self._here.state[old] == ENTRY:
            return None
        self._here.require(1)
        fresh = self._here.pop()
        self._here.drop(old, ENTRY)
        self._tables[request_id] = [*islice(table, index), fresh, *islice(table, index + 1, None)]
        return old, fresh

    def swap_out(self, request_id: str) -> list[tuple[int, int]]:
        """Block by block."""
        table = self._tables[request_id]
        self._host.require(len(table))
        pairs = [(block, self._host.pop()) for block in table]
        self._host_tables[request_id] = [host for _, host in pairs]
        self.free(request_id)
        return pairs

    def swap_in(self, request_id: str, shared: Sequence[int] = ()) -> list[tuple[int, int]]:
        """Shared blocks, then fresh ones for the rest."""
        host = self._host_tables[request_id]
        self._here.require(len(host) - len(shared))
        self._refuse(shared)
        table = list(shared)
        pairs = []
        for block in shared:
            self._here.state[block] += ENTRY
        for block in host[len(shared) :]:
            table.append(self._here.pop())
            pairs.append((block, table[-1]))
        self._tables[request_id] = table
        self.discard_swapped(request_id)
        return pairs

    def discard_swapped(self, request_id: str) -> None:
        """Back into the host's chain."""
        for block in reversed(self._host_tables.pop(request_id)):
            self._host.drop(block, ENTRY)

    def num_swapped_blocks(self, request_id: str) -> int:
        """Of the host."""
        return len(self._host_tables.get(request_id, []))

    def check(self) -> None:
        """Raise InvariantError unless entries are what tables say, and the chain has what is free."""
        for pool, tables in ((self._here, self._tables), (self._host, self._host_tables)):
            entries = [0] * len(pool.state)
            for table in tables.values():
                for block in table:
                    entries[block] += 1
            chain = list(islice(pool.chain(), len(pool.state) + 1))
            if len(chain) != len(set(chain)) or len(chain) != pool.num_free:
                raise InvariantError(f"the chain {chain} has not the {pool.num_free} free blocks")
            for block, (state, count) in enumerate(zip(pool.state, entries, strict=True)):
                if (state < 0) != (block in set(chain)) or max(0, state) % HOLD != count:
                    raise InvariantError(
                        f"block {block} has {count} entries, but its state is {state}"
                    )
