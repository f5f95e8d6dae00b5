# Lab 4, your part: tasks 4.1, 4.2, 4.3, 4.4, 4.5. The rest is given.
"""Which blocks hold the K and V of which token prefix.

A compressed trie in steps of whole blocks: SGLang's radix attention (Zheng et al. 2024) over vLLM's
blocks. Called by the KV cache manager. `naive.py` answers the same questions from a dictionary of
prefixes; it is the oracle.
"""

from collections.abc import Iterator, Sequence

from yaie.core.errors import InvariantError

from .node import LeafQueue, Node


class RadixTree:
    """See `yaie.core.contracts.RadixTree`. A match costs O(blocks matched), whatever is cached."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._root = Node()
        self._leaves = LeafQueue()
        self._num_nodes = 0
        self._num_blocks = 0
        self._num_evictable = 0
        self._tick = 0

    @property
    def num_blocks(self) -> int:
        """Blocks in the tree."""
        return self._num_blocks

    @property
    def num_evictable(self) -> int:
        """Blocks in nodes that are not locked."""
        return self._num_evictable

    # ANCHOR: match_prefix
    def peek(self, token_ids: list[int], max_blocks: int) -> list[int]:
        """Blocks of the longest cached prefix, at most `max_blocks`. Changes nothing."""
        # TODO 4.1: your code here (the reference: 4 lines).
        raise NotImplementedError(
            "radix_tree task 4.1: not implemented yet; see chapter The radix tree"
        )

    def match_prefix(self, token_ids: list[int], max_blocks: int) -> tuple[list[int], Node]:
        """(blocks, node) of the longest cached prefix of whole blocks, at most `max_blocks`.

        The node is split where the match ends, so it has exactly the matched blocks.
        """
        # TODO 4.1: your code here (the reference: 8 lines).
        raise NotImplementedError(
            "radix_tree task 4.1: not implemented yet; see chapter The radix tree"
        )

    def _walk(self, token_ids: list[int], max_blocks: int) -> Iterator[tuple[Node, int]]:
        """The nodes along the longest cached prefix, each with how many of its blocks match."""
        # TODO 4.1: your code here (the reference: 11 lines).
        raise NotImplementedError(
            "radix_tree task 4.1: not implemented yet; see chapter The radix tree"
        )

    def _common_blocks(self, node: Node, token_ids: list[int], done: int, max_blocks: int) -> int:
        """How many of a node's blocks agree with token_ids from block `done` on; the first does."""
        # TODO 4.1: your code here (the reference: 12 lines).
        raise NotImplementedError(
            "radix_tree task 4.1: not implemented yet; see chapter The radix tree"
        )

    def _touch(self, node: Node) -> None:
        """Mark a node as used now; its place among the leaves moves with it."""
        # TODO 4.1: your code here (the reference: 3 lines).
        raise NotImplementedError(
            "radix_tree task 4.1: not implemented yet; see chapter The radix tree"
        )

    # ANCHOR_END: match_prefix

    # ANCHOR: insert
    def insert(self, token_ids: list[int], block_ids: Sequence[int]) -> tuple[int, Node]:
        """File len(block_ids) blocks of token_ids; returns (how many were there already, node).

        The tree keeps its own blocks for the part that was there, and takes over the rest.
        """
        # TODO 4.2: your code here (the reference: 13 lines).
        raise NotImplementedError(
            "radix_tree task 4.2: not implemented yet; see chapter The radix tree"
        )

    # ANCHOR_END: insert

    # ANCHOR: split
    def split(self, node: Node, num_blocks: int) -> Node:
        """Cut a node after `num_blocks` blocks; returns the new upper node.

        `node` becomes the lower half: a handle to it still means the end of the longer match.
        Every lock on the lower half protects the upper half too, so it starts with the same count.
        """
        # TODO 4.3: your code here (the reference: 9 lines).
        raise NotImplementedError(
            "radix_tree task 4.3: not implemented yet; see chapter The radix tree"
        )

    # ANCHOR_END: split

    # ANCHOR: lock
    def lock(self, node: Node) -> None:
        """Protect the path from the root to `node` from eviction. Counts."""
        # TODO 4.4: your code here (the reference: 4 lines).
        raise NotImplementedError(
            "radix_tree task 4.4: not implemented yet; see chapter The radix tree"
        )

    def unlock(self, node: Node) -> None:
        """Undo one `lock`."""
        # TODO 4.4: your code here (the reference: 6 lines).
        raise NotImplementedError(
            "radix_tree task 4.4: not implemented yet; see chapter The radix tree"
        )

    def _path_up(self, node: Node) -> Iterator[Node]:
        """From `node` up to, not including, the root."""
        while node.parent is not None:
            yield node
            node = node.parent

    def path_blocks(self, node: Node) -> list[int]:
        """The blocks from the root down to the end of `node`."""
        return [block for step in reversed(list(self._path_up(node))) for block in step.blocks]

    # ANCHOR_END: lock

    # ANCHOR: evict
    def evict(self, num_blocks: int) -> list[int]:
        """Remove up to `num_blocks` blocks, least recently used unlocked leaves first.

        A leaf is eaten from its end, so that what remains is still a prefix; a parent left without
        children is the next leaf to go by its own last use.
        """
        # TODO 4.5: your code here (the reference: 12 lines).
        raise NotImplementedError(
            "radix_tree task 4.5: not implemented yet; see chapter The radix tree"
        )

    def _remove(self, leaf: Node) -> None:
        """Take a leaf off the tree: it is not evictable any more. Its parent may be a leaf then."""
        # TODO 4.5: your code here (the reference: 7 lines).
        raise NotImplementedError(
            "radix_tree task 4.5: not implemented yet; see chapter The radix tree"
        )

    # ANCHOR_END: evict

    def all_blocks(self) -> list[int]:
        """Every block in the tree."""
        return [block for node in self._nodes() for block in node.blocks]

    def _nodes(self) -> Iterator[Node]:
        """Every node but the root."""
        stack = list(self._root.children.values())
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())

    # ANCHOR: check
    def check(self) -> None:
        """Raise InvariantError unless the tree is one.

        Every node has at least one block and the tokens of each; a child hangs under its first block's
        tokens; a parent is locked at least as often as its children together; no block appears twice;
        the counters are right; and eviction can reach every unlocked block.
        """
        blocks: list[int] = []
        evictable = count = 0
        queued = self._leaves.current()
        for node in self._nodes():
            count += 1
            if node.is_evictable and node not in queued:
                raise InvariantError(
                    f"node {node.blocks} is an unlocked leaf, but eviction misses it"
                )
            blocks += node.blocks
            if not node.blocks or len(node.tokens) != len(node.blocks) * self.block_size:
                raise InvariantError(f"node {node.blocks} has {len(node.tokens)} tokens")
            if node.lock_count < sum(child.lock_count for child in node.children.values()):
                raise InvariantError(f"node {node.blocks} is locked less often than its children")
            for key, child in node.children.items():
                if child.parent is not node or key != tuple(child.tokens[: self.block_size]):
                    raise InvariantError(f"child {child.blocks} hangs wrong under {node.blocks}")
            evictable += len(node.blocks) if node.lock_count == 0 else 0
        if len(blocks) != len(set(blocks)):
            raise InvariantError(f"a block appears twice in the tree: {sorted(blocks)}")
        if (len(blocks), evictable, count) != (
            self._num_blocks,
            self._num_evictable,
            self._num_nodes,
        ):
            raise InvariantError(
                f"{len(blocks)} blocks ({evictable} evictable) in {count} nodes, but the counters say "
                f"{self._num_blocks} ({self._num_evictable}) in {self._num_nodes}"
            )

    # ANCHOR_END: check
