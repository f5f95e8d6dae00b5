"""Another right tree: a node is a number, the root is 0, and what nodes have stands in columns.

Numbers of removed nodes are given out again. The queue of leaves has at most one entry of each node: its
age is looked up when it comes up, and a node that was used meanwhile goes back with its new age.
"""

import heapq
from collections.abc import Sequence

from yaie.core.errors import InvariantError

ROOT = 0
NO_NODE = -1


class RadixTree:
    """See `yaie.core.contracts.RadixTree`."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.num_blocks = 0
        self.num_evictable = 0
        self._clock = 0
        self._spare: list[int] = []
        self._queue: list[tuple[int, int]] = []
        # Columns, one entry for each node.
        self._parent = [NO_NODE]
        self._edge: list[list[tuple[int, ...]]] = [[]]
        self._held: list[list[int]] = [[]]
        self._below: list[dict[tuple[int, ...], int]] = [{}]
        self._locks = [0]
        self._used = [0]
        self._queued = [True]  # the root never is, and must not be asked

    def _new(self, parent: int, edge: list[tuple[int, ...]], blocks: list[int]) -> int:
        """A node below `parent`."""
        values = (parent, edge, blocks, {}, 0, 0, False)
        columns = (
            self._parent,
            self._edge,
            self._held,
            self._below,
            self._locks,
            self._used,
            self._queued,
        )
        if self._spare:
            node = self._spare.pop()
            for column, value in zip(columns, values, strict=True):
                column[node] = value  # type: ignore[index]
        else:
            node = len(self._parent)
            for column, value in zip(columns, values, strict=True):
                column.append(value)  # type: ignore[attr-defined]
        self._below[parent][edge[0]] = node
        return node

    def _key(self, token_ids: list[int], index: int) -> tuple[int, ...]:
        return tuple(token_ids[index * self.block_size : (index + 1) * self.block_size])

    def _descend(self, token_ids: list[int], max_blocks: int) -> list[tuple[int, int]]:
        """(node, how many of its blocks match) along the longest cached prefix."""
        path: list[tuple[int, int]] = []
        node, done = ROOT, 0
        limit = min(max_blocks, len(token_ids) // self.block_size)
        while done < limit:
            child = self._below[node].get(self._key(token_ids, done))
            if child is None:
                break
            edge, count = self._edge[child], 1
            while (
                count < len(edge)
                and done + count < limit
                and edge[count] == self._key(token_ids, done + count)
            ):
                count += 1
            path.append((child, count))
            if count < len(edge):
                break
            node, done = child, done + count
        return path

    def peek(self, token_ids: list[int], max_blocks: int) -> list[int]:
        """Blocks of the longest cached prefix. Changes nothing."""
        path = self._descend(token_ids, max_blocks)
        return [block for node, count in path for block in self._held[node][:count]]

    def match_prefix(self, token_ids: list[int], max_blocks: int) -> tuple[list[int], int]:
        """The same with the node that ends there, all on the way used now."""
        self._clock += 1
        end, blocks = ROOT, []
        for node, count in self._descend(token_ids, max_blocks):
            end = node if count == len(self._edge[node]) else self.split(node, count)
            self._used[end] = self._clock
            blocks += self._held[end]
        self._queue_if_leaf(end)
        return blocks, end

    def insert(self, token_ids: list[int], block_ids: Sequence[int]) -> tuple[int, int]:
        """What is missing becomes one leaf."""
        matched, node = self.match_prefix(token_ids, len(block_ids))
        fresh = list(block_ids[len(matched) :])
        if fresh:
            edge = [self._key(token_ids, i) for i in range(len(matched), len(block_ids))]
            node = self._new(node, edge, fresh)
            self._used[node] = self._clock
            self.num_blocks += len(fresh)
            self.num_evictable += len(fresh)
            self._queue_if_leaf(node)
        return len(matched), node

    def split(self, node: int, num_blocks: int) -> int:
        """A new number for the upper half."""
        parent, edge, blocks = self._parent[node], self._edge[node], self._held[node]
        upper = self._new(parent, edge[:num_blocks], blocks[:num_blocks])
        self._locks[upper], self._used[upper] = self._locks[node], self._used[node]
        self._edge[node], self._held[node] = edge[num_blocks:], blocks[num_blocks:]
        self._parent[node] = upper
        self._below[upper][self._edge[node][0]] = node
        return upper

    def lock(self, node: int) -> None:
        """One more on every node up to the root."""
        while node != ROOT:
            self.num_evictable -= len(self._held[node]) * (self._locks[node] == 0)
            self._locks[node] += 1
            node = self._parent[node]

    def unlock(self, node: int) -> None:
        """One less."""
        step = node
        while step != ROOT:
            self._locks[step] -= 1
            self.num_evictable += len(self._held[step]) * (self._locks[step] == 0)
            step = self._parent[step]
        self._queue_if_leaf(node)

    def path_blocks(self, node: int) -> list[int]:
        """From the root down."""
        pieces = []
        while node != ROOT:
            pieces.append(self._held[node])
            node = self._parent[node]
        return [block for piece in reversed(pieces) for block in piece]

    def _may_go(self, node: int) -> bool:
        return self._parent[node] != NO_NODE and not self._locks[node] and not self._below[node]

    def _queue_if_leaf(self, node: int) -> None:
        if not self._queued[node] and self._may_go(node):
            self._queued[node] = True
            heapq.heappush(self._queue, (self._used[node], node))

    def evict(self, num_blocks: int) -> list[int]:
        """From the ends of leaves, the one first that was used longest ago."""
        gone: list[int] = []
        while self._queue and len(gone) < num_blocks:
            age, node = heapq.heappop(self._queue)
            self._queued[node] = False
            if not self._may_go(node):
                self._release_number(node)
            elif age == self._used[node]:
                self._eat(node, gone, num_blocks)
            else:
                self._queue_if_leaf(node)
        self.num_blocks -= len(gone)
        self.num_evictable -= len(gone)
        return gone

    def _eat(self, node: int, gone: list[int], num_blocks: int) -> None:
        blocks, edge, parent = self._held[node], self._edge[node], self._parent[node]
        first = edge[0]
        while blocks and len(gone) < num_blocks:
            gone.append(blocks.pop())
            edge.pop()
        if blocks:
            self._queue_if_leaf(node)
        else:
            del self._below[parent][first]
            self._parent[node] = NO_NODE
            self._release_number(node)
            self._queue_if_leaf(parent)

    def _release_number(self, node: int) -> None:
        """Give out the number again, if the node is gone and the queue has no entry of it."""
        if self._parent[node] == NO_NODE and node != ROOT:
            self._spare.append(node)

    def all_blocks(self) -> list[int]:
        """Of every node that is in the tree."""
        return [block for node in self._nodes() for block in self._held[node]]

    def _nodes(self) -> list[int]:
        return [node for node, parent in enumerate(self._parent) if parent != NO_NODE]

    def check(self) -> None:
        """Raise InvariantError unless columns, counters and queue agree."""
        blocks = self.all_blocks()
        if len(set(blocks)) != len(blocks) or len(blocks) != self.num_blocks:
            raise InvariantError(f"{sorted(blocks)} are not {self.num_blocks} different blocks")
        for node in self._nodes():
            if not self._held[node] or len(self._held[node]) != len(self._edge[node]):
                raise InvariantError(
                    f"node {node} has blocks {self._held[node]}, {self._edge[node]}"
                )
            if self._below[self._parent[node]].get(self._edge[node][0]) != node:
                raise InvariantError(f"node {node} is not found below {self._parent[node]}")
            if sum(self._locks[child] for child in self._below[node].values()) > self._locks[node]:
                raise InvariantError(f"node {node} is locked less often than its children")
            if self._may_go(node) and not self._queued[node]:
                raise InvariantError(f"node {node} is an unlocked leaf, but not in the queue")
        unlocked = sum(len(self._held[node]) for node in self._nodes() if not self._locks[node])
        if unlocked != self.num_evictable:
            raise InvariantError(f"{unlocked} blocks are evictable, not {self.num_evictable}")
