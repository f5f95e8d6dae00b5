"""A radix tree that stands in front of another one: `TreeInFront`."""

from collections.abc import Sequence
from typing import Any

from yaie.core.contracts import RadixTree


class TreeInFront:
    """See `yaie.core.contracts.RadixTree`. Passes every call to the tree behind it, which may be a
    learner's. Subclasses change some of the calls."""

    def __init__(self, tree: RadixTree) -> None:
        self.block_size = tree.block_size
        self._tree = tree

    @property
    def num_blocks(self) -> int:
        return self._tree.num_blocks

    @property
    def num_evictable(self) -> int:
        return self._tree.num_evictable

    def peek(self, token_ids: list[int], max_blocks: int) -> list[int]:
        return self._tree.peek(token_ids, max_blocks)

    def match_prefix(self, token_ids: list[int], max_blocks: int) -> tuple[list[int], Any]:
        return self._tree.match_prefix(token_ids, max_blocks)

    def insert(self, token_ids: list[int], block_ids: Sequence[int]) -> tuple[int, Any]:
        return self._tree.insert(token_ids, block_ids)

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
        return self._tree.evict(num_blocks)

    def check(self) -> None:
        self._tree.check()
