"""A radix tree in whose prefixes a request may only go on where a state was kept."""

from collections.abc import Sequence
from typing import Any

from yaie.core.contracts import RadixTree
from yaie.core.errors import InvariantError
from yaie.engine.states.awaited import WORTH, AwaitedCheckpoints


class CheckpointedTree:
    """See `yaie.core.contracts.RadixTree`. Stands in front of another one, whoever wrote it: that knows
    keys and values alone, and which of its blocks have a state behind them is known here.

    A checkpoint is there as long as its block.
    """

    def __init__(self, tree: RadixTree, checkpoints: AwaitedCheckpoints) -> None:
        self.block_size = tree.block_size
        self._tree = tree
        self._checkpoints = checkpoints

    @property
    def num_blocks(self) -> int:
        return self._tree.num_blocks

    @property
    def num_evictable(self) -> int:
        return self._tree.num_evictable

    def peek(self, token_ids: list[int], max_blocks: int) -> list[int]:
        """Whose keys and values are there, with a state behind them or not. Where another request is to
        keep one behind some of them, only those that may be reused: the others are worth waiting for."""
        blocks = self._tree.peek(token_ids, max_blocks)
        if self._checkpoints.is_awaited(blocks):
            return blocks[: self._checkpoints.depth(blocks)]
        return blocks

    def match_prefix(self, token_ids: list[int], max_blocks: int) -> tuple[list[int], Any]:
        """See the contract. Goes back to the last block with a state. If that is far, a state is to be
        kept at the end of what is there (`CheckpointStage`)."""
        found = self._tree.peek(token_ids, max_blocks)
        depth = self._checkpoints.depth(found)
        if len(found) - depth >= WORTH:
            self._checkpoints.expect(found[-1])
        blocks, node = self._tree.match_prefix(token_ids, depth)
        if blocks:
            self._checkpoints.use(blocks[-1])
        return blocks, node

    def insert(self, token_ids: list[int], block_ids: Sequence[int]) -> tuple[int, Any]:
        existing, node = self._tree.insert(token_ids, block_ids)
        if self._checkpoints.has_pending(block_ids):
            self._checkpoints.file(block_ids, self._tree.path_blocks(node))
        return existing, node

    def all_blocks(self) -> list[int]:
        return self._tree.all_blocks()

    def path_blocks(self, node: Any) -> list[int]:
        return self._tree.path_blocks(node)

    def lock(self, node: Any) -> None:
        self._tree.lock(node)

    def unlock(self, node: Any) -> None:
        self._tree.unlock(node)

    def split(self, node: Any, num_blocks: int) -> Any:
        return self._tree.split(node, num_blocks)

    def evict(self, num_blocks: int) -> list[int]:
        blocks = self._tree.evict(num_blocks)
        self._checkpoints.evicted(blocks)
        return blocks

    def check(self) -> None:
        """See the contract."""
        self._tree.check()
        lost = set(self._checkpoints.filed).difference(self._tree.all_blocks())
        if lost:
            raise InvariantError(f"states are kept behind blocks that are not in the tree: {lost}")
