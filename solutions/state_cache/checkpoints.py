"""States after cached prefixes: which there are, which give way, and where a chunk ends for one."""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from yaie.core.lives import Life
from yaie.core.request import Request


@dataclass(frozen=True, slots=True)
class Pending:
    """A state that is saved, or about to be: after the first `depth` blocks of a request. Once that
    life of it is over, nothing of it is filed any more."""

    life: Life
    depth: int
    slot: int


# ANCHOR: checkpoints
class Checkpoints:
    """See `yaie.core.contracts.states.Checkpoints`.

    `_pending`: by block, states of requests whose blocks are not in the tree. `_filed`: the state's slot
    for each block of the tree that has one, the least recently used first.
    """

    def __init__(self, first: int, count: int) -> None:
        self._free = list(range(first, first + count))[::-1]
        self._most_pending = count // 2
        self._pending: dict[int, Pending] = {}
        self._filed: OrderedDict[int, int] = OrderedDict()

    @property
    def filed(self) -> Collection[int]:
        """The blocks in the tree after which a state is kept."""
        return self._filed.keys()

    @property
    def num_pending(self) -> int:
        """States of requests that run, not in the tree."""
        return len(self._pending)

    def depth(self, blocks: Sequence[int]) -> int:
        """How many of these leading blocks of a text may be reused: up to the last one with a state."""
        # BEGIN SOLUTION 22.5
        return next((at for at in range(len(blocks), 0, -1) if blocks[at - 1] in self._filed), 0)
        # END SOLUTION

    def use(self, block: int) -> int:
        """The slot of the state after a block of the tree, now the last to go. Raises KeyError."""
        # BEGIN SOLUTION 22.5
        self._filed.move_to_end(block)
        return self._filed[block]
        # END SOLUTION

    def save(self, request: Request, block: int, depth: int) -> int | None:
        """A slot for the state after a request's block, its `depth`th.

        At most count // 2 states are pending, the new one included: None where one more would be too
        many, even if slots are free. If no slot is free, the least recently used of the tree's gives
        way.
        """
        # BEGIN SOLUTION 22.5
        self.drop(block)
        if len(self._pending) >= self._most_pending:
            return None
        slot = self._free.pop() if self._free else self._filed.popitem(last=False)[1]
        self._pending[block] = Pending(Life.of(request), depth, slot)
        return slot
        # END SOLUTION

    def drop(self, block: int) -> None:
        """The state after a request's block is no longer wanted."""
        if block in self._pending:
            self._free.append(self._pending.pop(block).slot)

    def sweep(self) -> None:
        """Free what belongs to requests that will not file it."""
        # BEGIN SOLUTION 22.5
        for block in [block for block, one in self._pending.items() if one.life.is_over]:
            self.drop(block)
        # END SOLUTION

    def file(self, mine: Sequence[int], path: Sequence[int]) -> None:
        """A request's leading blocks are in the tree now, as those of `path`. `sweep` was called before.

        A state that is after path[i] already stays, unused; the pending one's slot is free again.
        """
        # BEGIN SOLUTION 22.5
        for depth, (block, kept) in enumerate(zip(mine, path, strict=True), 1):
            one = self._pending.get(block)
            if one is None or one.depth != depth:
                continue
            if kept in self._filed:
                self.drop(block)
            else:
                self._filed[kept] = self._pending.pop(block).slot
        # END SOLUTION

    def has_pending(self, blocks: Iterable[int]) -> bool:
        """Whether a state after one of these is to be filed."""
        return bool(self._pending) and not self._pending.keys().isdisjoint(blocks)

    def evicted(self, blocks: Iterable[int]) -> None:
        """These blocks are in the tree no more."""
        # BEGIN SOLUTION 22.5
        for block in blocks:
            if block in self._filed:
                self._free.append(self._filed.pop(block))
        # END SOLUTION


# ANCHOR_END: checkpoints


# ANCHOR: cut_share
def cut_share(
    start: int, num_tokens: int, block_size: int, wanted: Sequence[int], least: int | None
) -> tuple[int, int]:
    """See `yaie.core.contracts.states.CutShare`."""
    # BEGIN SOLUTION 22.5
    end = start + num_tokens
    first, last = start // block_size + 1, end // block_size  # depths at which it can end
    depth = next((place for place in wanted if place >= first), last + 1)
    if depth > last:
        if least is None or last < max(first, least):
            return num_tokens, 0
        depth = last
    return depth * block_size - start, depth
    # END SOLUTION


# ANCHOR_END: cut_share
