"""Another right tree: a lock goes up to the first locked node, and leaves wait in a bucket per tick.

A node counts its own locks and its children that are locked in any way. What is locked already is not
walked again, so that the second lock behind a long prefix costs one step. A heap orders ticks, not
nodes.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from yaie.core.errors import InvariantError


class _Node:
    __slots__ = ("below", "blocks", "edge", "held_below", "own_locks", "parent", "used")

    def __init__(self, edge: list[Any], blocks: list[int], parent: "_Node | None") -> None:
        self.edge, self.blocks, self.parent = edge, blocks, parent
        self.below: dict[Any, _Node] = {}
        self.own_locks = self.held_below = self.used = 0

    @property
    def is_locked(self) -> bool:
        return self.own_locks + self.held_below > 0

    @property
    def may_go(self) -> bool:
        return self.parent is not None and not self.is_locked and not self.below


class _Buckets:
    """Leaves by their last use. A leaf is in no more than one bucket, its own."""

    def __init__(self) -> None:
        self._at: dict[_Node, int] = {}
        self._buckets: defaultdict[int, dict[_Node, None]] = defaultdict(dict)
        self._ticks: list[int] = []

    def __contains__(self, node: _Node) -> bool:
        return node in self._at

    def update(self, node: _Node) -> None:
        """After any change of a node: put it where it belongs, if it may go."""
        tick = self._at.get(node)
        if tick is not None and not (node.may_go and node.used == tick):
            del self._at[node], self._buckets[tick][node]
            if not self._buckets[tick]:
                del self._buckets[tick]
        if node.may_go and node not in self._at:
            if node.used not in self._buckets:
                heapq.heappush(self._ticks, node.used)
            self._buckets[node.used][node] = None
            self._at[node] = node.used
        if len(self._ticks) > 2 * len(self._buckets) + 64:
            self._ticks = sorted(self._buckets)

    def oldest(self) -> _Node | None:
        """A leaf of the first tick that has one. It stays."""
        while self._ticks and self._ticks[0] not in self._buckets:
            heapq.heappop(self._ticks)
        return next(iter(self._buckets[self._ticks[0]])) if self._ticks else None


class RadixTree:
    """See `yaie.core.contracts.RadixTree`."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.root = _Node([], [], None)
        self.leaves = _Buckets()
        self.tick = self._blocks = self._locked = 0

    @property
    def num_blocks(self) -> int:
        """Blocks in the tree."""
        return self._blocks

    @property
    def num_evictable(self) -> int:
        """Those that no lock protects."""
        return self._blocks - self._locked

    def _cut(self, token_ids: list[int], first: int, last: int) -> Iterator[tuple[int, ...]]:
        """The blocks of tokens from `first` to before `last`, as far as there are whole ones."""
        size = self.block_size
        for index in range(first, min(last, len(token_ids) // size)):
            yield tuple(token_ids[index * size : (index + 1) * size])

    def _follow(self, token_ids: list[int], max_blocks: int) -> tuple[list[_Node], int]:
        """The nodes of the longest cached prefix, and how many blocks of the last one match."""
        path, node, inside = [], self.root, 0
        for block in self._cut(token_ids, 0, max_blocks):
            if inside == len(node.edge):
                if block not in node.below:
                    break
                node = node.below[block]
                path.append(node)
                inside = 1
            elif node.edge[inside] == block:
                inside += 1
            else:
                break
        return path, inside

    def peek(self, token_ids: list[int], max_blocks: int) -> list[int]:
        """Blocks of the longest cached prefix. Changes nothing."""
        path, inside = self._follow(token_ids, max_blocks)
        found = [block for node in path[:-1] for block in node.blocks]
        return found + [block for node in path[-1:] for block in node.blocks[:inside]]

    def match_prefix(self, token_ids: list[int], max_blocks: int) -> tuple[list[int], _Node]:
        """(blocks, node), the path used now."""
        path, inside = self._follow(token_ids, max_blocks)
        if path and inside < len(path[-1].edge):
            path[-1] = self.split(path[-1], inside)
        self.tick += 1
        for node in path:
            node.used = self.tick
        end = path[-1] if path else self.root
        self.leaves.update(end)
        return [block for node in path for block in node.blocks], end

    def insert(self, token_ids: list[int], block_ids: Sequence[int]) -> tuple[int, _Node]:
        """File what is missing as one leaf."""
        matched, end = self.match_prefix(token_ids, len(block_ids))
        existing, total = len(matched), len(block_ids)
        if existing < total:
            edge = list(self._cut(token_ids, existing, total))
            leaf = end.below[edge[0]] = _Node(edge, list(block_ids[existing:]), end)
            self._blocks += total - existing
            leaf.used = self.tick
            self.leaves.update(end)
            self.leaves.update(leaf)
            end = leaf
        return existing, end

    def split(self, node: _Node, num_blocks: int) -> _Node:
        """The lower half keeps its locks; the upper one has it as a child that may be locked."""
        assert node.parent is not None
        upper = _Node(node.edge[:num_blocks], node.blocks[:num_blocks], node.parent)
        upper.used, upper.held_below = node.used, int(node.is_locked)
        node.parent.below[upper.edge[0]] = upper
        node.edge, node.blocks = node.edge[num_blocks:], node.blocks[num_blocks:]
        upper.below[node.edge[0]] = node
        node.parent = upper
        return upper

    def lock(self, node: _Node) -> None:
        """Up to the first that is locked already."""
        was_locked = node.is_locked
        node.own_locks += 1
        while node.parent is not None and not was_locked:
            self._locked += len(node.blocks)
            self.leaves.update(node)
            node = node.parent
            was_locked = node.is_locked
            node.held_below += 1

    def unlock(self, node: _Node) -> None:
        """Up to the first that stays locked."""
        node.own_locks -= 1
        while node.parent is not None and not node.is_locked:
            self._locked -= len(node.blocks)
            self.leaves.update(node)
            node = node.parent
            node.held_below -= 1

    def path_blocks(self, node: _Node) -> list[int]:
        """From the root down."""
        blocks: list[int] = []
        while node.parent is not None:
            blocks.extend(reversed(node.blocks))
            node = node.parent
        blocks.reverse()
        return blocks

    def evict(self, num_blocks: int) -> list[int]:
        """The oldest leaf loses its last block, again and again."""
        gone: list[int] = []
        while len(gone) < num_blocks and (leaf := self.leaves.oldest()):
            first = leaf.edge[0]
            while leaf.blocks and len(gone) < num_blocks:
                gone.append(leaf.blocks.pop())
                leaf.edge.pop()
            if leaf.blocks:
                break
            parent, leaf.parent = leaf.parent, None
            assert parent is not None
            del parent.below[first]
            self.leaves.update(leaf)
            self.leaves.update(parent)
        self._blocks -= len(gone)
        return gone

    def all_blocks(self) -> list[int]:
        """Every block in the tree."""
        return [block for node in self._walk() for block in node.blocks]

    def _walk(self) -> Iterator[_Node]:
        waiting = [self.root]
        for node in waiting:
            waiting.extend(node.below.values())
            if node is not self.root:
                yield node

    def check(self) -> None:
        """Raise InvariantError unless locks, buckets and counters fit the nodes."""
        locked, blocks = 0, self.all_blocks()
        for node in self._walk():
            locked += len(node.blocks) if node.is_locked else 0
            if node.held_below != sum(child.is_locked for child in node.below.values()):
                raise InvariantError(f"node {node.blocks} counts {node.held_below} locked children")
            if not node.blocks or len(node.blocks) != len(node.edge):
                raise InvariantError(f"node {node.blocks} has the edge {node.edge}")
            if node.may_go != (node in self.leaves):
                raise InvariantError(f"node {node.blocks} is in a bucket, or in none, wrongly")
        if len(set(blocks)) != len(blocks) or (len(blocks), locked) != (self._blocks, self._locked):
            raise InvariantError(f"{blocks} are {self._blocks} blocks, {self._locked} locked")
