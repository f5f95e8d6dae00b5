"""A node of the radix tree, and the order in which nodes are given up."""

import heapq
from dataclasses import dataclass, field
from typing import Optional


# ANCHOR: node
@dataclass(slots=True, eq=False)
class Node:
    """An edge's tokens and the node at its end. `tokens` holds block_size tokens for each block.

    parent: None for the root, and for a node that was removed.
    children: by the tokens of the child's first block.
    lock_count: how many requests rely on this node or on one below it.
    last_used: the tick of the last match or insert that passed here.
    """

    tokens: list[int] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    parent: Optional["Node"] = None
    children: dict[tuple[int, ...], "Node"] = field(default_factory=dict)
    lock_count: int = 0
    last_used: int = 0

    @property
    def is_evictable(self) -> bool:
        """An unlocked leaf of the tree. The root and removed nodes are none: they have no parent."""
        return self.lock_count == 0 and not self.children and self.parent is not None


# ANCHOR_END: node


class LeafQueue:
    """Unlocked leaves, least recently used first; O(log n) a call.

    Nothing is ever searched for: an entry that is out of date (its node was used, locked or removed
    since) is dropped when it reaches the top, or when the queue has doubled. A node may have several
    entries.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Node]] = []
        self._serial = 0  # decides between equals, so that nodes are never compared
        self._compact_at = 64

    def push(self, node: Node) -> None:
        """Note that a node is an unlocked leaf, used at `node.last_used`."""
        self._serial += 1
        heapq.heappush(self._heap, (node.last_used, self._serial, node))
        if len(self._heap) > self._compact_at:
            self._compact()

    def pop(self) -> Node | None:
        """Take the unlocked leaf that was used longest ago; None if there is none."""
        while self._heap:
            last_used, _, node = heapq.heappop(self._heap)
            if node.is_evictable and node.last_used == last_used:
                return node
        return None

    def current(self) -> set[Node]:
        """The nodes that `pop` would return."""
        return {
            node for used, _, node in self._heap if node.is_evictable and node.last_used == used
        }

    def _compact(self) -> None:
        self._heap = [(node.last_used, i, node) for i, node in enumerate(self.current())]
        heapq.heapify(self._heap)
        self._serial = len(self._heap)
        self._compact_at = 2 * len(self._heap) + 64
