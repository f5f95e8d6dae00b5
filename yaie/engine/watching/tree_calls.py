"""The calls of a radix tree, written down; and what the tree looks like by them.

Nodes are opaque to all but the tree, a learner's too. But each block stands in one node alone, so a node
is named by the block with which it ends, and the calls say which blocks follow which.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from yaie.core.contracts import RadixTree
from yaie.core.records import ROOT, Record

Call = list[Any]


class TreeCalls:
    """Listens to a tree: its methods are replaced on the object, and given back by `stop`.

    calls: since they were last taken. Raises AttributeError for a tree that does not let it.
    """

    def __init__(self, tree: RadixTree) -> None:
        self.calls: list[Call] = []
        self._tree = tree
        self._replaced: list[str] = []
        try:
            self._replace("match_prefix", self._match_prefix)
            self._replace("insert", self._insert)
            self._replace("lock", self._lock("lock"))
            self._replace("unlock", self._lock("unlock"))
            self._replace("evict", self._evict)
        except AttributeError:
            self.stop()
            raise

    def stop(self) -> None:
        """Listen no more."""
        for name in self._replaced:
            delattr(self._tree, name)
        self._replaced.clear()

    def take(self) -> list[Call]:
        """The calls since the last time."""
        calls, self.calls = self.calls, []
        return calls

    def _replace(self, name: str, make: Callable[[Any], Any]) -> None:
        setattr(self._tree, name, make(getattr(self._tree, name)))
        self._replaced.append(name)

    def _end(self, node: Any) -> int:
        path = self._tree.path_blocks(node)
        return path[-1] if path else ROOT

    def _match_prefix(self, inner: Any) -> Any:
        def match_prefix(token_ids: list[int], max_blocks: int) -> Any:
            blocks, node = inner(token_ids, max_blocks)
            self.calls.append(["match_prefix", [len(token_ids), max_blocks], list(blocks)])
            return blocks, node

        return match_prefix

    def _insert(self, inner: Any) -> Any:
        def insert(token_ids: list[int], block_ids: Sequence[int]) -> Any:
            existing, node = inner(token_ids, block_ids)
            path = list(self._tree.path_blocks(node))
            self.calls.append(["insert", [len(token_ids), list(block_ids)], [existing, path]])
            return existing, node

        return insert

    def _lock(self, name: str) -> Callable[[Any], Any]:
        def make(inner: Any) -> Any:
            def lock(node: Any) -> None:
                self.calls.append([name, [self._end(node)], None])
                inner(node)

            return lock

        return make

    def _evict(self, inner: Any) -> Any:
        def evict(num_blocks: int) -> list[int]:
            gone: list[int] = inner(num_blocks)
            self.calls.append(["evict", [num_blocks], list(gone)])
            return gone

        return evict


class TreePicture:
    """A tree by its calls: which block follows which, where nodes end, which are locked."""

    def __init__(self) -> None:
        self._before: dict[int, int] = {}  # each block's predecessor on its path
        self._ends: set[int] = set()
        self._locks: dict[int, int] = {}

    def __contains__(self, block: int) -> bool:
        return block in self._before

    def file(self, path: Sequence[int], locks: int = 0) -> None:
        """A node ends where this path does."""
        for before, block in zip((ROOT, *path), path, strict=False):
            self._before.setdefault(block, before)
        if path:
            self._ends.add(path[-1])
            self._lock(path[-1], locks)

    def apply(self, calls: Iterable[Call]) -> None:
        """What these calls changed."""
        for name, arguments, result in calls:
            if name == "match_prefix" and result:
                self._cut(result[-1])
            elif name == "insert":
                existing, path = result
                if existing:
                    self._cut(path[existing - 1])
                self.file(path)
            elif name in ("lock", "unlock"):
                self._lock(arguments[0], 1 if name == "lock" else -1)
            elif name == "evict":
                self._evict(result)

    def nodes(self) -> list[Record]:
        """As `snapshot` has them, parents first."""
        found = []
        for end in self._ends:
            path = self._path(end)
            above = next((k for k in range(len(path) - 1, 0, -1) if path[k - 1] in self._ends), 0)
            found.append({"path": path, "existing": above, "locks": self._locks.get(end, 0)})
        return sorted(found, key=lambda node: len(node["path"]))

    def _path(self, block: int) -> list[int]:
        path = []
        while block != ROOT:
            path.append(block)
            block = self._before[block]
        return path[::-1]

    def _cut(self, block: int) -> None:
        if block in self._before:
            self._ends.add(block)

    def _lock(self, end: int, change: int) -> None:
        if end != ROOT and change:
            count = self._locks.get(end, 0) + change
            if count > 0:
                self._locks[end] = count
            else:
                self._locks.pop(end, None)

    def _evict(self, blocks: Iterable[int]) -> None:
        before = [self._before.pop(block, ROOT) for block in blocks]
        for block in blocks:
            self._ends.discard(block)
            self._locks.pop(block, None)
        # What is left of a node that lost its end ends one block earlier.
        self._ends |= {block for block in before if block in self._before}
