"""Which states are about to come, for which it is worth waiting: `AwaitedCheckpoints`."""

from collections.abc import Collection, Iterable, Sequence

from yaie.core.contracts.states import Checkpoints
from yaie.core.lives import Life
from yaie.core.request import Request

WORTH = 4
"""Blocks that a checkpoint must spare a request, beyond the one before it."""


class AwaitedCheckpoints:
    """See `yaie.core.contracts.states.Checkpoints`. Stands in front of those of lab 22.

    `awaited` are blocks of the tree behind which a request is to keep its state when it gets there;
    None until it is known which.
    """

    def __init__(self, checkpoints: Checkpoints, count: int) -> None:
        """count: of slots. With one of them nothing can be saved."""
        self._kept = checkpoints
        self._may_save = count > 1
        self._awaited: dict[int, Life | None] = {}

    @property
    def filed(self) -> Collection[int]:
        return self._kept.filed

    @property
    def num_pending(self) -> int:
        return self._kept.num_pending

    def depth(self, blocks: Sequence[int]) -> int:
        return self._kept.depth(blocks)

    def use(self, block: int) -> int:
        return self._kept.use(block)

    def is_awaited(self, blocks: Sequence[int]) -> bool:
        """Whether a state is to be kept behind one of these, beyond those that are there."""
        return bool(self._awaited) and any(
            block in self._awaited for block in blocks[self.depth(blocks) :]
        )

    def expect(self, block: int) -> None:
        """A request that is being admitted is to keep its state behind this block of the tree."""
        if self._may_save:
            self._awaited.setdefault(block, None)

    def claim(self, block: int, request: Request) -> None:
        """It is this one."""
        if block in self._awaited and self._awaited[block] is None:
            self._awaited[block] = Life.of(request)

    def save(self, request: Request, block: int, depth: int) -> int | None:
        """See the contract. If there is no slot, nothing is awaited any more."""
        slot = self._kept.save(request, block, depth)
        if slot is None:
            self._awaited.clear()
        return slot

    def drop(self, block: int) -> None:
        self._kept.drop(block)

    def sweep(self) -> None:
        """See the contract. Nothing is awaited of those requests."""
        self._kept.sweep()
        for block, owner in list(self._awaited.items()):
            if owner is None or owner.is_over:
                del self._awaited[block]

    def file(self, mine: Sequence[int], path: Sequence[int]) -> None:
        self._kept.file(mine, path)
        if self._awaited:
            for block in path:
                if block in self._kept.filed:
                    self._awaited.pop(block, None)

    def has_pending(self, blocks: Iterable[int]) -> bool:
        return self._kept.has_pending(blocks)

    def evicted(self, blocks: Iterable[int]) -> None:
        gone = list(blocks)
        self._kept.evicted(gone)
        for block in gone:
            self._awaited.pop(block, None)
