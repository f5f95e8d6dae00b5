"""A record for each slot, which says what it holds; those of the tree are linked by their last use."""

from collections.abc import Collection, Iterable, Sequence

from yaie.core.lives import Life
from yaie.core.request import Request


class Record:
    """block: None while the slot is free. life: None once it is filed. before, after: of the chain."""

    __slots__ = ("after", "before", "block", "depth", "life", "slot")

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.block: int | None = None
        self.life: Life | None = None
        self.depth = 0
        self.before = self.after = self

    def unlink(self) -> None:
        """Out of the chain."""
        self.before.after, self.after.before = self.after, self.before
        self.before = self.after = self

    def link(self, ring: "Record") -> None:
        """To the end of the chain."""
        self.before, self.after = ring.before, ring
        ring.before.after = self
        ring.before = self


class Checkpoints:
    """See `yaie.core.contracts.states.Checkpoints`."""

    def __init__(self, first: int, count: int) -> None:
        self._free = [Record(slot) for slot in range(first, first + count)]
        self._limit = count // 2
        self._ring = Record(-1)
        self._in_tree: dict[int, Record] = {}
        self._of_requests: dict[int, Record] = {}

    @property
    def filed(self) -> Collection[int]:
        return self._in_tree.keys()

    @property
    def num_pending(self) -> int:
        return len(self._of_requests)

    def depth(self, blocks: Sequence[int]) -> int:
        for depth in reversed(range(len(blocks))):
            if blocks[depth] in self._in_tree:
                return depth + 1
        return 0

    def use(self, block: int) -> int:
        record = self._in_tree[block]
        record.unlink()
        record.link(self._ring)
        return record.slot

    def save(self, request: Request, block: int, depth: int) -> int | None:
        self.drop(block)
        if len(self._of_requests) >= self._limit:
            return None
        if not self._free:
            self._release(self._ring.after)
        record = self._free.pop()
        record.block, record.life, record.depth = block, Life.of(request), depth
        self._of_requests[block] = record
        return record.slot

    def drop(self, block: int) -> None:
        record = self._of_requests.pop(block, None)
        if record is not None:
            self._free.append(record)

    def sweep(self) -> None:
        for block, record in list(self._of_requests.items()):
            if record.life is None or record.life.is_over:
                self.drop(block)

    def file(self, mine: Sequence[int], path: Sequence[int]) -> None:
        for at in range(len(mine)):
            record = self._of_requests.get(mine[at])
            if record is None or record.depth != at + 1:
                continue
            if path[at] in self._in_tree:
                self.drop(mine[at])
                continue
            del self._of_requests[mine[at]]
            record.block, record.life = path[at], None
            self._in_tree[path[at]] = record
            record.link(self._ring)

    def has_pending(self, blocks: Iterable[int]) -> bool:
        return any(block in self._of_requests for block in blocks)

    def evicted(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            if block in self._in_tree:
                self._release(self._in_tree[block])

    def _release(self, record: Record) -> None:
        if record.block is not None:
            del self._in_tree[record.block]
        record.unlink()
        record.block = None
        self._free.append(record)


def cut_share(
    start: int, num_tokens: int, block_size: int, wanted: Sequence[int], least: int | None
) -> tuple[int, int]:
    """See `yaie.core.contracts.states.CutShare`."""
    last = (start + num_tokens) // block_size
    reached = [place for place in wanted if start // block_size < place <= last]
    depth = reached[0] if reached else 0
    if not reached and least is not None and last >= least and last * block_size > start:
        depth = last
    return (depth * block_size - start, depth) if depth else (num_tokens, 0)
