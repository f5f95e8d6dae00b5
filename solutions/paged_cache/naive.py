# ORACLE
"""BlockManager from its definition: tables and holds are kept, everything else is counted. The oracle.

A block is free if no table and no hold names it, so nothing can leak, but every call scans everything.
"""

from collections import Counter
from collections.abc import Sequence

from yaie.core.errors import BlockStateError, OutOfBlocksError


class NaiveBlockManager:
    """See `yaie.core.contracts.BlockManager`. A fresh block is the lowest that is free."""

    def __init__(self, num_blocks: int, block_size: int, num_host_blocks: int = 0) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.num_host_blocks = num_host_blocks
        self._tables: dict[str, list[int]] = {}
        self._host_tables: dict[str, list[int]] = {}
        self._held: list[int] = []

    def ref_count(self, block_id: int) -> int:
        return sum(names.count(block_id) for names in (*self._tables.values(), self._held))

    def _free(self) -> list[int]:
        return [block for block in range(self.num_blocks) if self.ref_count(block) == 0]

    def _free_host(self) -> list[int]:
        tables = self._host_tables.values()
        return [b for b in range(self.num_host_blocks) if all(b not in table for table in tables)]

    @property
    def num_free(self) -> int:
        return len(self._free())

    @property
    def num_free_host(self) -> int:
        return len(self._free_host())

    def get_physical_blocks(self, request_id: str) -> list[int]:
        return self._tables.get(request_id, [])

    def num_swapped_blocks(self, request_id: str) -> int:
        return len(self._host_tables.get(request_id, []))

    def allocate(self, request_id: str, num_blocks: int) -> list[int]:
        blocks = _first(num_blocks, self._free())
        self._tables.setdefault(request_id, []).extend(blocks)
        return blocks

    def share(self, request_id: str, block_ids: Sequence[int]) -> None:
        self._refuse_free(block_ids)
        self._tables.setdefault(request_id, []).extend(block_ids)

    def hold(self, block_ids: Sequence[int]) -> None:
        self._refuse_free(block_ids)
        self._held += block_ids

    def _refuse_free(self, block_ids: Sequence[int]) -> None:
        if any(self.ref_count(block) == 0 for block in block_ids):
            raise BlockStateError(f"one of the blocks {list(block_ids)} is free")

    def release(self, block_ids: Sequence[int]) -> None:
        if Counter(block_ids) - Counter(self._held):
            raise BlockStateError(f"one of the blocks {list(block_ids)} is not held")
        self._held = list((Counter(self._held) - Counter(block_ids)).elements())

    def free(self, request_id: str) -> None:
        if request_id not in self._tables:
            raise BlockStateError(f"request {request_id!r} has no blocks to free")
        del self._tables[request_id]

    def replace(self, request_id: str, index: int, block_ids: Sequence[int]) -> None:
        self._refuse_free(block_ids)
        before, after = self._tables[request_id][:index], self._tables[request_id][index:]
        self._tables[request_id] = [*before, *block_ids, *after[len(block_ids) :]]

    def copy_on_write(self, request_id: str, index: int) -> tuple[int, int] | None:
        old = self._tables[request_id][index]
        if self.ref_count(old) == 1:
            return None
        (fresh,) = _first(1, self._free())
        self._tables[request_id] = list(self._tables[request_id])
        self._tables[request_id][index] = fresh
        return old, fresh

    def swap_out(self, request_id: str) -> list[tuple[int, int]]:
        host = _first(len(self._tables[request_id]), self._free_host())
        self._host_tables[request_id] = host
        return list(zip(self._tables.pop(request_id), host, strict=True))

    def swap_in(self, request_id: str, shared: Sequence[int] = ()) -> list[tuple[int, int]]:
        self._refuse_free(shared)
        host = self._host_tables[request_id][len(shared) :]
        fresh = _first(len(host), self._free())
        self._tables[request_id] = [*shared, *fresh]
        self.discard_swapped(request_id)
        return list(zip(host, fresh, strict=True))

    def discard_swapped(self, request_id: str) -> None:
        del self._host_tables[request_id]

    def check(self) -> None:
        """Nothing is kept twice, so nothing can disagree."""


def _first(count: int, free: list[int]) -> list[int]:
    if count > len(free):
        raise OutOfBlocksError(f"{count} blocks wanted, {len(free)} free")
    return free[:count]
