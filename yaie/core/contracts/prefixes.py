"""Lab 4: which prefixes are kept, and in which blocks."""

from collections.abc import Sequence
from typing import Any, Protocol


# ANCHOR: radix_tree
class RadixTree(Protocol):
    """Lab 4. A compressed trie over token ids, in steps of whole blocks, that remembers which block
    holds the K and V of each. Nodes are opaque handles to callers; they stay valid while locked.

    Whatever is cached: `peek`, `match_prefix` and `insert` cost the tokens of the blocks that match or
    are filed, `lock` and `unlock` the nodes of the path, `evict` O(log leaves) for each leaf."""

    block_size: int

    @property
    def num_blocks(self) -> int:
        """Blocks in the tree. O(1)."""
        ...

    @property
    def num_evictable(self) -> int:
        """Blocks in nodes that are not locked. O(1)."""
        ...

    def peek(self, token_ids: list[int], max_blocks: int) -> list[int]:
        """Blocks of the longest cached prefix, at most `max_blocks`. Changes nothing."""
        ...

    def match_prefix(self, token_ids: list[int], max_blocks: int) -> tuple[list[int], Any]:
        """(blocks, node) of the longest cached prefix of whole blocks, at most `max_blocks`.

        Splits a node in whose middle the match ends, so that `node` ends where the match does; it is
        the root if nothing matches. Marks the path as recently used.
        """
        ...

    def insert(self, token_ids: list[int], block_ids: Sequence[int]) -> tuple[int, Any]:
        """File len(block_ids) blocks of token_ids; returns (how many were there already, node).

        The tree keeps its own blocks for the part that was there; it takes over the rest.
        """
        ...

    def all_blocks(self) -> list[int]:
        """Every block in the tree, in any order. O(blocks)."""
        ...

    def path_blocks(self, node: Any) -> list[int]:
        """The blocks from the root down to the end of `node`."""
        ...

    def lock(self, node: Any) -> None:
        """Protect the path from the root to `node` from eviction. Counts."""
        ...

    def unlock(self, node: Any) -> None:
        """Undo one `lock`."""
        ...

    def split(self, node: Any, num_blocks: int) -> Any:
        """Cut a node after `num_blocks` blocks; returns the new upper node.

        `node` keeps its identity and becomes the lower half, so locks on it stay right. Costs what the
        node has of tokens and blocks, whatever is beside or below it.
        """
        ...

    def evict(self, num_blocks: int) -> list[int]:
        """Remove up to `num_blocks` blocks, least recently used unlocked leaves first, from the ends
        of the leaves; returns them."""
        ...

    def check(self) -> None:
        """Verify every invariant; raises InvariantError naming the node and what is wrong."""
        ...


# ANCHOR_END: radix_tree
