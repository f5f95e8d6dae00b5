"""Cached texts of which a beginning may be gone: `WindowedPrefixes`."""

from collections.abc import Iterable, Sequence
from typing import Any

from yaie.core.contracts import BlockManager, RadixTree
from yaie.core.errors import InvariantError
from yaie.worker.windows import Held


class WindowedPrefixes:
    """A radix tree whose entries are *places*, and which block each place has; many have none.

    A place is a number that is used once. The tree knows texts by their places. It keeps a place whose
    block has gone to another request: what comes after it is still found. A request may go on behind
    a text if the blocks of its last `window` tokens are there: no later token sees what was before.

    The tree's locks keep places, references keep blocks. A block to which only the tree refers is
    *idle*. When a request needs room, the least recently used idle block is given up first.

    evicted: blocks that were given up, since the start.
    """

    def __init__(
        self, blocks: BlockManager, tree: RadixTree, blank: int, held: Held, most_places: int
    ) -> None:
        """blank: the block that stands for those that were given back. most_places: in the tree, beyond
        those of requests that run."""
        self.evicted = 0
        self._blocks = blocks
        self._tree = tree
        self._blank = blank
        self._held = held
        self._most_places = most_places
        self._block_of: dict[int, int] = {}
        self._place_of: dict[int, int] = {}
        self._idle: dict[int, None] = {}  # places, the least recently used first
        self._next = 0

    @property
    def num_idle(self) -> int:
        """Blocks that may be had by `evict`."""
        return len(self._idle)

    # --- requests ---

    def peek(self, token_ids: list[int], max_blocks: int) -> int:
        """How many leading blocks of a text, `max_blocks` at most, it may go on behind. Changes
        nothing."""
        usable, size = 0, self._held.block_size
        begin = 0  # of those that are there without a gap
        for index, place in enumerate(self._tree.peek(token_ids, max_blocks)):
            if place not in self._block_of:
                begin = index + 1
            if begin <= self._held.first_seen((index + 1) * size):
                usable = index + 1
        return usable

    def enter(self, token_ids: list[int], max_blocks: int) -> tuple[list[int], Any]:
        """(the table of those blocks, a locked node). Blocks that no token behind them sees are blank in
        it. The caller refers to the others before it asks for anything else."""
        places, node = self._tree.match_prefix(token_ids, self.peek(token_ids, max_blocks))
        self._tree.lock(node)
        first = self._held.first_seen(len(places) * self._held.block_size)
        seen = places[first:]
        for place in seen:
            self._idle.pop(place, None)
        return [self._blank] * first + [self._block_of[place] for place in seen], node

    def file(
        self, token_ids: list[int], table: Sequence[int], filed: int, node: Any
    ) -> tuple[list[int], Any]:
        """File the blocks of a table from `filed` on; those before are filed at `node`, which is
        unlocked.

        Returns (what the table is to have from `filed` on, the node, locked). Where a place has a block
        already, that is the tree's; where it lost it, it gets the table's.
        """
        count = len(table) - filed
        fresh = range(self._next, self._next + count)
        self._next += count
        _, end = self._tree.insert(token_ids, [*self._tree.path_blocks(node), *fresh])
        self._tree.lock(end)
        self._tree.unlock(node)
        wanted = []
        for place, block in zip(self._tree.path_blocks(end)[filed:], table[filed:], strict=True):
            known = self._block_of.get(place)
            if block == self._blank:
                known = block
            elif known is None:
                self._blocks.hold([block])
                self._block_of[place], self._place_of[block] = block, place
            else:
                self._idle.pop(place, None)
            wanted.append(block if known is None else known)
        if self._tree.num_blocks > self._most_places:
            self._forget(self._tree.evict(self._tree.num_blocks - self._most_places))
        return wanted, end

    def left(self, blocks: Iterable[int]) -> None:
        """These have lost a reference: what is the tree's alone is idle, the first of them first."""
        for block in blocks:
            place = self._place_of.get(block)
            if place is not None and self._blocks.ref_count(block) == 1:
                self._idle.setdefault(place)

    def has(self, block: int) -> bool:
        """Whether the tree refers to a block."""
        return block in self._place_of

    def unlock(self, node: Any) -> None:
        """Undo the lock of `enter` or `file`."""
        self._tree.unlock(node)

    # --- room ---

    def evict(self, num_blocks: int) -> None:
        """Give up so many idle blocks, or all that there are. Their places stay."""
        for _ in range(min(num_blocks, len(self._idle))):
            self._give_up(next(iter(self._idle)))

    def reset(self) -> None:
        """Forget all texts that no request uses."""
        self.evict(len(self._idle))
        self._forget(self._tree.evict(self._tree.num_evictable))

    def _forget(self, places: Iterable[int]) -> None:
        """These are in the tree no more, and their blocks neither."""
        for place in places:
            if place in self._block_of:
                self._give_up(place)

    def _give_up(self, place: int) -> None:
        block = self._block_of.pop(place)
        del self._place_of[block]
        self._idle.pop(place, None)
        self._blocks.release([block])
        self.evicted += 1

    # --- invariants ---

    def check(self, tables: Iterable[tuple[Sequence[int], int, int, Any]]) -> None:
        """Raise InvariantError unless tree, places, blocks and tables agree.

        tables: (table, leading entries that are blank, leading entries that are filed, node) of each.
        """
        self._tree.check()
        in_tree = set(self._tree.all_blocks())
        if lost := self._block_of.keys() - in_tree:
            raise InvariantError(f"places {sorted(lost)} have blocks and are not in the tree")
        if {block: place for place, block in self._block_of.items()} != self._place_of:
            raise InvariantError("a block has two places, or none of the one that has it")
        if self._blank in self._place_of:
            raise InvariantError(f"the blank block {self._blank} has a place in the tree")
        counts = {place: self._blocks.ref_count(block) for place, block in self._block_of.items()}
        if free := sorted(place for place, count in counts.items() if count == 0):
            raise InvariantError(f"the blocks of places {free} are free")
        idle = {place for place, count in counts.items() if count == 1}
        if idle != self._idle.keys():
            odd = sorted(idle ^ self._idle.keys())
            raise InvariantError(f"places {odd} are idle and not known as such, or the reverse")
        for table, blank, filed, node in tables:
            path = self._tree.path_blocks(node)
            if len(path) != filed:
                raise InvariantError(f"{filed} blocks of a table are filed, at a path of {path}")
            theirs = [self._block_of.get(place) for place in path[blank:]]
            if theirs != list(table[blank:filed]):
                raise InvariantError(f"table {table[blank:filed]} but the tree has {theirs}")
