# Lab 22, your part (edition 2): task 22.5. The rest is given.
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
        # TODO 22.5: your code here (the reference: 1 line).
        raise NotImplementedError(
            "state_cache task 22.5: not implemented yet; see chapter Hybrid models"
        )

    def use(self, block: int) -> int:
        """The slot of the state after a block of the tree, now the last to go. Raises KeyError."""
        # TODO 22.5: your code here (the reference: 2 lines).
        raise NotImplementedError(
            "state_cache task 22.5: not implemented yet; see chapter Hybrid models"
        )

    def save(self, request: Request, block: int, depth: int) -> int | None:
        """A slot for the state after a request's block, its `depth`th.

        At most count // 2 states are pending, the new one included: None where one more would be too
        many, even if slots are free. If no slot is free, the least recently used of the tree's gives
        way.
        """
        # TODO 22.5: your code here (the reference: 6 lines).
        raise NotImplementedError(
            "state_cache task 22.5: not implemented yet; see chapter Hybrid models"
        )

    def drop(self, block: int) -> None:
        """The state after a request's block is no longer wanted."""
        if block in self._pending:
            self._free.append(self._pending.pop(block).slot)

    def sweep(self) -> None:
        """Free what belongs to requests that will not file it."""
        # TODO 22.5: your code here (the reference: 2 lines).
        raise NotImplementedError(
            "state_cache task 22.5: not implemented yet; see chapter Hybrid models"
        )

    def file(self, mine: Sequence[int], path: Sequence[int]) -> None:
        """A request's leading blocks are in the tree now, as those of `path`. `sweep` was called before.

        A state that is after path[i] already stays, unused; the pending one's slot is free again.
        """
        # TODO 22.5: your code here (the reference: 8 lines).
        raise NotImplementedError(
            "state_cache task 22.5: not implemented yet; see chapter Hybrid models"
        )

    def has_pending(self, blocks: Iterable[int]) -> bool:
        """Whether a state after one of these is to be filed."""
        return bool(self._pending) and not self._pending.keys().isdisjoint(blocks)

    def evicted(self, blocks: Iterable[int]) -> None:
        """These blocks are in the tree no more."""
        # TODO 22.5: your code here (the reference: 3 lines).
        raise NotImplementedError(
            "state_cache task 22.5: not implemented yet; see chapter Hybrid models"
        )


# ANCHOR_END: checkpoints


# ANCHOR: cut_share
def cut_share(
    start: int, num_tokens: int, block_size: int, wanted: Sequence[int], least: int | None
) -> tuple[int, int]:
    """See `yaie.core.contracts.states.CutShare`."""
    # TODO 22.5: your code here (the reference: 8 lines).
    raise NotImplementedError(
        "state_cache task 22.5: not implemented yet; see chapter Hybrid models"
    )


# ANCHOR_END: cut_share
