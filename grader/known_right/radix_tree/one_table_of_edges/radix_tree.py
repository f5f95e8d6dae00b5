"""Another right tree: all edges are in one dictionary, tokens are bytes, and a handle is not its node.

An edge is found by (number of the node above, bytes of the first block). Every match gives a handle of
its own, which finds its node through a table; numbers count up and never come back.
"""

import heapq
from array import array
from collections.abc import Sequence
from types import SimpleNamespace

from yaie.core.errors import InvariantError

WIDTH = 8  # bytes of a token id


class Handle:
    """What callers hold. Two of the same node are equal."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and other.number == self.number

    def __hash__(self) -> int:
        return hash(self.number)


class RadixTree:
    """See `yaie.core.contracts.RadixTree`."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._nodes: dict[int, SimpleNamespace] = {0: _node(0, bytearray(), array("q"), 0)}
        self._edges: dict[tuple[int, bytes], int] = {}
        self._heap: list[tuple[int, int]] = []
        self._last_number = self._time = self._total = self._free = 0

    @property
    def num_blocks(self) -> int:
        """Blocks in the tree."""
        return self._total

    @property
    def num_evictable(self) -> int:
        """Blocks without a lock."""
        return self._free

    def _chop(self, tokens: bytearray, index: int) -> bytes:
        width = self.block_size * WIDTH
        return bytes(tokens[index * width : (index + 1) * width])

    def _lookup(self, token_ids: list[int], max_blocks: int) -> list[tuple[int, int]]:
        """(node, blocks that match) along the longest cached prefix."""
        size, found, above, done = self.block_size, [], 0, 0
        limit = min(max_blocks, len(token_ids) // size)

        def packed(index: int) -> bytes:
            return array("q", token_ids[index * size : (index + 1) * size]).tobytes()

        while done < limit:
            number = self._edges.get((above, packed(done)))
            if number is None:
                break
            node, same = self._nodes[number], 1
            while same < min(len(node.blocks), limit - done):
                if self._chop(node.tokens, same) != packed(done + same):
                    break
                same += 1
            found.append((number, same))
            if same < len(node.blocks):
                break
            above, done = number, done + same
        return found

    def peek(self, token_ids: list[int], max_blocks: int) -> list[int]:
        """Blocks of the longest cached prefix. Changes nothing."""
        blocks = array("q")
        for number, same in self._lookup(token_ids, max_blocks):
            blocks += self._nodes[number].blocks[:same]
        return blocks.tolist()

    def match_prefix(self, token_ids: list[int], max_blocks: int) -> tuple[list[int], Handle]:
        """The same with a handle, used now."""
        self._time += 1
        blocks, end = array("q"), 0
        for number, same in self._lookup(token_ids, max_blocks):
            end = number
            if same < len(self._nodes[number].blocks):
                end = self.split(Handle(number), same).number
            self._nodes[end].used = self._time
            blocks += self._nodes[end].blocks
        self._offer(end)
        return blocks.tolist(), Handle(end)

    def insert(self, token_ids: list[int], block_ids: Sequence[int]) -> tuple[int, Handle]:
        """A node for what is missing."""
        matched, handle = self.match_prefix(token_ids, len(block_ids))
        done, size = len(matched), self.block_size
        if done == len(block_ids):
            return done, handle
        tokens = bytearray(array("q", token_ids[done * size : len(block_ids) * size]).tobytes())
        number = self._make(handle.number, tokens, array("q", block_ids[done:]))
        fresh = len(block_ids) - done
        self._total, self._free = self._total + fresh, self._free + fresh
        self._offer(number)
        return done, Handle(number)

    def _make(self, above: int, tokens: bytearray, blocks: "array[int]") -> int:
        self._last_number += 1
        self._nodes[self._last_number] = _node(above, tokens, blocks, self._time)
        self._edges[above, self._chop(tokens, 0)] = self._last_number
        self._nodes[above].children += 1
        return self._last_number

    def split(self, node: Handle, num_blocks: int) -> Handle:
        """The node's entry moves below a new one."""
        lower = self._nodes[node.number]
        cut = num_blocks * self.block_size * WIDTH
        self._nodes[lower.above].children -= 1  # _make counts the upper half in its place
        number = self._make(lower.above, lower.tokens[:cut], lower.blocks[:num_blocks])
        upper = self._nodes[number]
        upper.used, upper.locks, upper.children = lower.used, lower.locks, 1
        lower.tokens, lower.blocks, lower.above = (
            lower.tokens[cut:],
            lower.blocks[num_blocks:],
            number,
        )
        self._edges[number, self._chop(lower.tokens, 0)] = node.number
        return Handle(number)

    def _change_locks(self, number: int, by: int) -> None:
        while number:
            node = self._nodes[number]
            before, node.locks = node.locks, node.locks + by
            self._free += len(node.blocks) * ((node.locks == 0) - (before == 0))
            number = node.above

    def lock(self, node: Handle) -> None:
        """Counts."""
        self._change_locks(node.number, 1)

    def unlock(self, node: Handle) -> None:
        """Counts back."""
        self._change_locks(node.number, -1)
        self._offer(node.number)

    def path_blocks(self, node: Handle) -> list[int]:
        """From the root down."""
        number, blocks = node.number, array("q")
        pieces = []
        while number:
            pieces.append(self._nodes[number].blocks)
            number = self._nodes[number].above
        for piece in reversed(pieces):
            blocks += piece
        return blocks.tolist()

    def _may_go(self, number: int) -> bool:
        node = self._nodes.get(number)
        return number > 0 and node is not None and not node.children and not node.locks

    def _offer(self, number: int) -> None:
        if self._may_go(number):
            heapq.heappush(self._heap, (self._nodes[number].used, number))
            if len(self._heap) > 4 * len(self._nodes) + 50:
                self._heap = sorted({entry for entry in self._heap if self._is_true(entry)})

    def _is_true(self, entry: tuple[int, int]) -> bool:
        return self._may_go(entry[1]) and self._nodes[entry[1]].used == entry[0]

    def evict(self, num_blocks: int) -> list[int]:
        """Least recently used leaves, from their ends."""
        gone: list[int] = []
        while self._heap and len(gone) < num_blocks:
            entry = heapq.heappop(self._heap)
            if not self._is_true(entry):
                continue
            node = self._nodes[entry[1]]
            while node.blocks and len(gone) < num_blocks:
                gone.append(node.blocks.pop())
            if node.blocks:
                del node.tokens[len(node.blocks) * self.block_size * WIDTH :]
                heapq.heappush(self._heap, entry)
            else:
                del self._nodes[entry[1]], self._edges[node.above, self._chop(node.tokens, 0)]
                self._nodes[node.above].children -= 1
                self._offer(node.above)
        self._total -= len(gone)
        self._free -= len(gone)
        return gone

    def all_blocks(self) -> list[int]:
        """Every block."""
        return [block for node in self._nodes.values() for block in node.blocks]

    def check(self) -> None:
        """Raise InvariantError unless edges, nodes and counters agree."""
        blocks = self.all_blocks()
        if len(set(blocks)) != len(blocks):
            raise InvariantError(f"a block appears twice: {sorted(blocks)}")
        edges = {
            (node.above, self._chop(node.tokens, 0)): number
            for number, node in self._nodes.items()
            if number
        }
        if edges != self._edges:
            raise InvariantError("the table of edges is not that of the nodes")
        locks = dict.fromkeys(self._nodes, 0)
        children = dict.fromkeys(self._nodes, 0)
        for number, node in self._nodes.items():
            if number:
                locks[node.above] += node.locks
                children[node.above] += 1
                if (
                    len(node.tokens) != len(node.blocks) * self.block_size * WIDTH
                    or not node.blocks
                ):
                    raise InvariantError(f"node {number} has other tokens than blocks")
        current = {entry for entry in self._heap if self._is_true(entry)}
        for number, node in self._nodes.items():
            if node.children != children[number] or (number and node.locks < locks[number]):
                raise InvariantError(f"node {number} counts its children or locks wrong")
            if self._may_go(number) and (node.used, number) not in current:
                raise InvariantError(f"node {number} can go and is not queued")
        free = sum(len(node.blocks) for node in self._nodes.values() if not node.locks)
        if (self._total, self._free) != (len(blocks), free):
            raise InvariantError(f"{len(blocks)} blocks, {free} free: counters are wrong")


def _node(above: int, tokens: bytearray, blocks: "array[int]", used: int) -> SimpleNamespace:
    return SimpleNamespace(
        above=above, tokens=tokens, blocks=blocks, used=used, locks=0, children=0
    )
