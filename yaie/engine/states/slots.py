"""Which slots hold a state behind which prefix: `Checkpoints`."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from yaie.core.request import Request, RequestStatus

WORTH = 4
"""Blocks that a checkpoint must spare a request, beyond the one before it."""


@dataclass(slots=True)
class Pending:
    """A state that is saved, or about to be: behind the first `depth` blocks of a request.

    life: the request's `num_preemptions` then. Once it runs no more, or begins anew, nothing of it is
    filed any more.
    """

    request: Request
    life: int
    depth: int
    slot: int

    @property
    def is_over(self) -> bool:
        """Whether it will never be filed."""
        request = self.request
        return request.status is not RequestStatus.RUNNING or request.num_preemptions != self.life


class Checkpoints:
    """Slots for states, from `first` on. Each is free, or holds the state behind one block of a table.

    A block in the radix tree stands behind one prefix alone, so its number names the prefix. `pending`
    are the blocks of requests whose step has not been read, and `filed` those in the tree, the least
    recently used first. `awaited` are blocks of the tree behind which a request is to keep its state
    when it gets there; None until it is known which.
    """

    def __init__(self, first: int, count: int) -> None:
        self._free = list(range(first, first + count))[::-1]
        self._most_pending = count // 2
        self._pending: dict[int, Pending] = {}
        self._filed: OrderedDict[int, int] = OrderedDict()
        self._awaited: dict[int, Pending | None] = {}

    @property
    def filed(self) -> Iterable[int]:
        """The blocks in the tree behind which a state is kept."""
        return self._filed.keys()

    @property
    def num_pending(self) -> int:
        """States of requests that run, not in the tree."""
        return len(self._pending)

    def depth(self, blocks: Sequence[int]) -> int:
        """How many of these leading blocks of a text may be reused: up to the last one with a state."""
        return next((at for at in range(len(blocks), 0, -1) if blocks[at - 1] in self._filed), 0)

    def is_awaited(self, blocks: Sequence[int]) -> bool:
        """Whether a state is to be kept behind one of these, beyond those that are there."""
        return bool(self._awaited) and any(
            block in self._awaited for block in blocks[self.depth(blocks) :]
        )

    def expect(self, block: int) -> None:
        """A request that is being admitted is to keep its state behind this block of the tree."""
        if self._most_pending:
            self._awaited.setdefault(block, None)

    def claim(self, block: int, request: Request) -> None:
        """It is this one."""
        if block in self._awaited and self._awaited[block] is None:
            self._awaited[block] = Pending(request, request.num_preemptions, 0, 0)

    def use(self, block: int) -> int:
        """The slot behind a block in the tree, which is now the last to go. Raises KeyError."""
        self._filed.move_to_end(block)
        return self._filed[block]

    def save(self, request: Request, block: int, depth: int) -> int | None:
        """A slot for the state behind a request's block; None if there is none to be had.

        The least recently used of the tree's gives way, unless requests that run have half of all.
        """
        self._drop_pending(block)
        if len(self._pending) >= self._most_pending:
            self._awaited.clear()
            return None
        slot = self._free.pop() if self._free else self._filed.popitem(last=False)[1]
        self._pending[block] = Pending(request, request.num_preemptions, depth, slot)
        return slot

    def drop(self, block: int) -> None:
        """The state behind a request's block is no longer wanted."""
        self._drop_pending(block)

    def sweep(self) -> None:
        """Free what belongs to requests that will not file it, and await nothing of them."""
        for block in [block for block, one in self._pending.items() if one.is_over]:
            self._drop_pending(block)
        for block, owner in list(self._awaited.items()):
            if owner is None or owner.is_over:
                del self._awaited[block]

    def file(self, mine: Sequence[int], path: Sequence[int]) -> None:
        """A request's leading blocks are in the tree now, as those of `path`."""
        for depth, (block, kept) in enumerate(zip(mine, path, strict=True), 1):
            one = self._pending.get(block)
            if one is None or one.depth != depth:
                continue
            del self._pending[block]
            self._awaited.pop(kept, None)
            if kept in self._filed:
                self._free.append(one.slot)
            else:
                self._filed[kept] = one.slot

    def has_pending(self, blocks: Iterable[int]) -> bool:
        """Whether a state behind one of these is to be filed."""
        return bool(self._pending) and not self._pending.keys().isdisjoint(blocks)

    def evicted(self, blocks: Iterable[int]) -> None:
        """These blocks are in the tree no more."""
        for block in blocks:
            self._awaited.pop(block, None)
            if block in self._filed:
                self._free.append(self._filed.pop(block))

    def _drop_pending(self, block: int) -> None:
        if block in self._pending:
            self._free.append(self._pending.pop(block).slot)
