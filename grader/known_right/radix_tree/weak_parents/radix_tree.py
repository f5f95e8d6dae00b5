"""Another right tree: children own, parents are weak references, and a node is a dictionary of nodes.

Every leaf has one entry in the queue, which it knows: an entry that is out of date is emptied at once
and skipped later. An empty node is false, the root too.
"""

import heapq
import weakref
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile

from yaie.core.errors import InvariantError

Key = tuple[int, ...]


class Branch(dict[Key, "Branch"]):
    """A dictionary of branches, with the edge that leads to it: pairs of (tokens of a block, block)."""

    def __init__(self, edge: list[tuple[Key, int]], above: "Branch | None") -> None:
        super().__init__()
        self.edge = edge
        self.above: Callable[[], Branch | None] = weakref.ref(above) if above is not None else _none
        self.locks = 0
        self.age = 0
        self.entry: list[object] | None = None

    __hash__ = object.__hash__  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return self is other

    def __bool__(self) -> bool:
        return bool(self.edge)

    @property
    def blocks(self) -> list[int]:
        """Of the edge alone."""
        return [block for _, block in self.edge]


def _none() -> None:
    return None


class RadixTree:
    """See `yaie.core.contracts.RadixTree`."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._trunk = Branch([], None)
        self._order: list[list[object]] = []  # [age, serial, branch or None]
        self._serial = self._now = self._count = self._num_locked = self._num_dead = 0

    @property
    def num_blocks(self) -> int:
        """All."""
        return self._count

    @property
    def num_evictable(self) -> int:
        """All but those that are locked."""
        return self._count - self._num_locked

    def _keys(self, token_ids: list[int], begin: int, end: int) -> Iterator[Key]:
        size = self.block_size
        for at in range(begin, min(end, len(token_ids) // size)):
            yield tuple(token_ids[at * size : at * size + size])

    def _trace(self, token_ids: list[int], most: int) -> Iterator[tuple[Branch, int]]:
        branch, done = self._trunk, 0
        while (key := next(self._keys(token_ids, done, most), None)) is not None:
            below = branch.get(key)
            if below is None:
                return
            pairs = zip(below.edge, self._keys(token_ids, done, most), strict=False)
            same = sum(1 for _ in takewhile(lambda pair: pair[0][0] == pair[1], pairs))
            yield below, same
            if same < len(below.edge):
                return
            branch, done = below, done + same

    def peek(self, token_ids: list[int], max_blocks: int) -> list[int]:
        """Blocks of the longest cached prefix. Changes nothing."""
        return [
            block
            for branch, same in self._trace(token_ids, max_blocks)
            for _, block in branch.edge[:same]
        ]

    def match_prefix(self, token_ids: list[int], max_blocks: int) -> tuple[list[int], Branch]:
        """Blocks, and the branch that ends with them."""
        self._now += 1
        path = [*self._trace(token_ids, max_blocks)]
        branches = [
            branch if same == len(branch.edge) else self.split(branch, same)
            for branch, same in path
        ]
        for branch in branches:
            branch.age = self._now
        end = branches[-1] if branches else self._trunk
        self._line_up(end)
        return [block for branch in branches for block in branch.blocks], end

    def insert(self, token_ids: list[int], block_ids: Sequence[int]) -> tuple[int, Branch]:
        """A branch for the rest."""
        matched, end = self.match_prefix(token_ids, len(block_ids))
        rest = self._keys(token_ids, len(matched), len(block_ids))
        edge = list(zip(rest, block_ids[len(matched) :], strict=True))
        if not edge:
            return len(matched), end
        twig = Branch(edge, end)
        twig.age = self._now
        end[edge[0][0]] = twig
        self._count += len(edge)
        self._line_up(end)
        self._line_up(twig)
        return len(matched), twig

    def split(self, node: Branch, num_blocks: int) -> Branch:
        """`node` is what hangs below the new branch."""
        above = node.above()
        assert above is not None
        upper = Branch(node.edge[:num_blocks], above)
        upper.locks, upper.age = node.locks, node.age
        above[upper.edge[0][0]] = upper
        del node.edge[:num_blocks]
        node.above = weakref.ref(upper)
        upper[node.edge[0][0]] = node
        return upper

    def _to_trunk(self, branch: Branch) -> Iterator[Branch]:
        while (above := branch.above()) is not None:
            yield branch
            branch = above

    def lock(self, node: Branch) -> None:
        """On the whole way down to it."""
        for branch in self._to_trunk(node):
            branch.locks += 1
            self._num_locked += len(branch.edge) if branch.locks == 1 else 0
            self._line_up(branch)

    def unlock(self, node: Branch) -> None:
        """One lock less."""
        for branch in self._to_trunk(node):
            branch.locks -= 1
            self._num_locked -= len(branch.edge) if branch.locks == 0 else 0
            self._line_up(branch)

    def path_blocks(self, node: Branch) -> list[int]:
        """From the trunk."""
        blocks: list[int] = []
        for branch in self._to_trunk(node):
            blocks[:0] = branch.blocks
        return blocks

    def _line_up(self, branch: Branch) -> None:
        """Make the branch's entry in the queue what it should be: its age, or none."""
        may_go = branch.above() is not None and not branch.locks and not len(branch)
        entry = branch.entry
        if entry is not None and may_go and entry[0] == branch.age:
            return
        if entry is not None:
            entry[2], branch.entry = None, None
            self._num_dead += 1
        if may_go:
            self._serial += 1
            branch.entry = [branch.age, self._serial, branch]
            heapq.heappush(self._order, branch.entry)
        if self._num_dead > len(self._order) // 2 + 20:
            self._order = sorted(entry for entry in self._order if entry[2] is not None)
            self._num_dead = 0

    def evict(self, num_blocks: int) -> list[int]:
        """Twigs, from their tips."""
        gone: list[int] = []
        while self._order and len(gone) < num_blocks:
            branch = self._order[0][2]
            if not isinstance(branch, Branch):
                heapq.heappop(self._order)
                self._num_dead -= 1
                continue
            key = branch.edge[0][0]
            while branch.edge and len(gone) < num_blocks:
                gone.append(branch.edge.pop()[1])
            if not branch.edge:
                heapq.heappop(self._order)
                branch.entry, above = None, branch.above()
                assert above is not None
                del above[key]
                branch.above = _none
                self._line_up(above)
        self._count -= len(gone)
        return gone

    def all_blocks(self) -> list[int]:
        """Every block."""
        return [block for branch in self._branches() for block in branch.blocks]

    def _branches(self) -> Iterator[Branch]:
        todo = list(self._trunk.values())
        while todo:
            yield (branch := todo.pop())
            todo += branch.values()

    def check(self) -> None:
        """Raise InvariantError unless branches, queue and counters agree."""
        count = locked = 0
        for branch in self._branches():
            count += len(branch.edge)
            locked += len(branch.edge) if branch.locks else 0
            above = branch.above()
            if not branch.edge or above is None or above.get(branch.edge[0][0]) is not branch:
                raise InvariantError(f"branch {branch.blocks} hangs wrong")
            if branch.locks < sum(below.locks for below in branch.values()):
                raise InvariantError(
                    f"branch {branch.blocks} is locked less often than those below"
                )
            may_go = not branch.locks and not len(branch)
            if may_go != (branch.entry is not None):
                raise InvariantError(f"branch {branch.blocks} is queued, or is not, wrongly")
        if len(set(self.all_blocks())) != count or (count, locked) != (
            self._count,
            self._num_locked,
        ):
            raise InvariantError(f"{count} blocks, {locked} locked: the counters are wrong")
