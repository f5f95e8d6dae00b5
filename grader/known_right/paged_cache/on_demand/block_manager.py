"""Which request holds which block: what was never used is a number, what came back a queue.

Different from the reference: blocks come into being when they are first handed out, and those that were
given back longest ago go first; counts are dicts without zeros; to replace nothing makes no new list; a
copy on write is a slice assignment on a new one.
"""

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from itertools import chain

from yaie.core.errors import BlockStateError, InvariantError, OutOfBlocksError


class _Store:
    """Numbers from 0, handed out and taken back."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._next = 0
        self._back: deque[int] = deque()

    def __len__(self) -> int:
        return self.size - self._next + len(self._back)

    def take(self, count: int) -> list[int]:
        if count > len(self):
            raise OutOfBlocksError(f"{count} of {len(self)} blocks")
        used = [self._back.popleft() for _ in range(min(count, len(self._back)))]
        fresh = list(range(self._next, self._next + count - len(used)))
        self._next += len(fresh)
        return used + fresh

    def give(self, blocks: Iterable[int]) -> None:
        self._back.extend(blocks)

    def free(self) -> list[int]:
        return [*self._back, *range(self._next, self.size)]


class BlockManager:
    """See `yaie.core.contracts.BlockManager`."""

    def __init__(self, num_blocks: int, block_size: int, num_host_blocks: int = 0) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.num_host_blocks = num_host_blocks
        self._device, self._host = _Store(num_blocks), _Store(num_host_blocks)
        self._counts: dict[int, int] = {}
        self._held: Counter[int] = Counter()
        self._tables: dict[str, list[int]] = {}
        self._away: dict[str, deque[int]] = {}

    @property
    def num_free(self) -> int:
        """Free device blocks."""
        return len(self._device)

    @property
    def num_free_host(self) -> int:
        """Free host blocks."""
        return len(self._host)

    def allocate(self, request_id: str, num_blocks: int) -> list[int]:
        """Append fresh blocks to the request's table."""
        fresh = self._device.take(num_blocks)
        self._counts.update(dict.fromkeys(fresh, 1))
        table = self._tables.setdefault(request_id, [])
        table += fresh
        return fresh

    def free(self, request_id: str) -> None:
        """Drop the request's table."""
        try:
            table = self._tables.pop(request_id)
        except KeyError:
            raise BlockStateError(f"{request_id!r} has no table") from None
        self._less(table)

    def get_physical_blocks(self, request_id: str) -> list[int]:
        """The request's block table."""
        return self._tables.get(request_id) or []

    def _more(self, blocks: Sequence[int]) -> None:
        if not all(block in self._counts for block in blocks):
            raise BlockStateError(f"one of {list(blocks)[:8]} is free")
        for block in blocks:
            self._counts[block] += 1

    def _less(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            self._counts[block] -= 1
            if not self._counts[block]:
                del self._counts[block]
                self._device.give([block])

    def share(self, request_id: str, block_ids: Sequence[int]) -> None:
        """Append blocks in use to the request's table."""
        self._more(block_ids)
        self._tables.setdefault(request_id, []).extend(block_ids)

    def hold(self, block_ids: Sequence[int]) -> None:
        """A reference that is in no table."""
        self._more(block_ids)
        self._held.update(block_ids)

    def release(self, block_ids: Sequence[int]) -> None:
        """Give back what `hold` took."""
        given = Counter(block_ids)
        if any(count > self._held[block] for block, count in given.items()):
            raise BlockStateError("a block is not held that often")
        self._held -= given
        self._less(given.elements())

    def ref_count(self, block_id: int) -> int:
        """References to a device block; 0 if free."""
        return self._counts.get(block_id, 0)

    def replace(self, request_id: str, index: int, block_ids: Sequence[int]) -> None:
        """Point entries of a table at other blocks in use."""
        if not block_ids:
            return
        self._more(block_ids)
        table = list(self._tables[request_id])
        old = [table[index + i] for i in range(len(block_ids))]
        table[index : index + len(block_ids)] = block_ids
        self._tables[request_id] = table
        self._less(old)

    def copy_on_write(self, request_id: str, index: int) -> tuple[int, int] | None:
        """(old, fresh) if another holder reads entry `index`."""
        table = self._tables[request_id]
        if self._counts[table[index]] < 2:
            return None
        fresh = self._device.take(1)
        self._counts[fresh[0]] = 1
        new = table.copy()
        new[index : index + 1] = fresh
        self._tables[request_id] = new
        self._less([table[index]])
        return table[index], fresh[0]

    def swap_out(self, request_id: str) -> list[tuple[int, int]]:
        """Move a table to the host pool."""
        table = self.get_physical_blocks(request_id)
        there = self._host.take(len(table))
        self._away[request_id] = deque(there)
        self.free(request_id)
        return [(here, host) for here, host in zip(table, there, strict=True)]

    def swap_in(self, request_id: str, shared: Sequence[int] = ()) -> list[tuple[int, int]]:
        """Bring a table back, but for its first entries, which are `shared`."""
        if any(self.ref_count(block) == 0 for block in shared):
            raise BlockStateError("a shared block is free")
        there = list(self._away[request_id])[len(shared) :]
        fresh = self._device.take(len(there))
        self._counts.update(dict.fromkeys(fresh, 1))
        self._more(shared)
        self._tables[request_id] = [*shared, *fresh]
        self.discard_swapped(request_id)
        return list(zip(there, fresh, strict=True))

    def discard_swapped(self, request_id: str) -> None:
        """Free the host blocks of a swapped-out request."""
        self._host.give(self._away.pop(request_id))

    def num_swapped_blocks(self, request_id: str) -> int:
        """Length of the request's table on the host."""
        return len(self._away.get(request_id, ()))

    def check(self) -> None:
        """Raise InvariantError unless counts, tables and stores agree."""
        uses = Counter(chain(*self._tables.values(), self._held.elements()))
        if uses != self._counts:
            raise InvariantError(f"{uses} uses, {self._counts} counted")
        for store, used in (
            (self._device, self._counts),
            (self._host, chain(*self._away.values())),
        ):
            if sorted([*store.free(), *used]) != list(range(store.size)):
                raise InvariantError("a block is lost, or has two owners")
