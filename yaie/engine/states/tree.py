"""A radix tree in whose prefixes a request may only go on where a state was kept."""

from collections.abc import Sequence
from typing import Any

from yaie.core.contracts import RadixTree
from yaie.core.errors import InvariantError
from yaie.engine.states.awaited import WORTH, AwaitedCheckpoints
from yaie.engine.tree_in_front import TreeInFront


class CheckpointedTree(TreeInFront):
    """See TreeInFront. The other tree knows keys and values alone, and which of its blocks have a state
    behind them is known here.

    A checkpoint is there as long as its block.
    """

    def __init__(self, tree: RadixTree, checkpoints: AwaitedCheckpoints) -> None:
        super().__init__(tree)
        self._checkpoints = checkpoints

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
