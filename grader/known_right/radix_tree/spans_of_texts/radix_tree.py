"""Another right tree: an edge is a span of the text that it came with, and a split moves borders.

Texts and blocks are copied once, when they are filed, and shared by all nodes that are cut from them, so
that neither a split nor an eviction copies a token. Comparison is token by token, with early ends.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Optional

from yaie.core.errors import InvariantError

from .node import LeafQueue


@dataclass(eq=False)
class Span:
    """Blocks `begin` to `end` of a text; both are counted in blocks from the text's own start."""

    text: tuple[int, ...] = ()
    filed: tuple[int, ...] = ()
    begin: int = 0
    end: int = 0
    parent: Optional["Span"] = None
    children: dict[int, "Span"] = field(default_factory=dict)
    lock_count: int = 0
    last_used: int = 0

    @property
    def is_evictable(self) -> bool:
        """Asked by the queue."""
        return self.parent is not None and not self.children and not self.lock_count

    def __len__(self) -> int:
        return self.end - self.begin


class RadixTree:
    """See `yaie.core.contracts.RadixTree`. Children are found by a hash of tokens."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._root = Span()
        self._queue = LeafQueue()
        self._ticks = count(1)
        self._now = 0
        self._counts = {"blocks": 0, "locked": 0}

    num_blocks = property(lambda self: self._counts["blocks"])
    num_evictable = property(lambda self: self._counts["blocks"] - self._counts["locked"])

    def _agrees(self, span: Span, index: int, token_ids: list[int], at: int) -> bool:
        """Whether the span's block `index` has the tokens of token_ids' block `at`."""
        size = self.block_size
        here, there = (span.begin + index) * size, at * size
        return all(span.text[here + i] == token_ids[there + i] for i in range(size))

    def _find(self, node: Span, token_ids: list[int], at: int) -> Span | None:
        """The child that begins with block `at`. Of equal hashes one is under another number."""
        key = self._hash(token_ids, at)
        while (child := node.children.get(key)) and not self._agrees(child, 0, token_ids, at):
            key += 1
        return child

    def _hash(self, token_ids: Sequence[int], at: int) -> int:
        return hash(tuple(token_ids[at * self.block_size : (at + 1) * self.block_size]))

    def _hang(self, child: Span, parent: Span) -> None:
        key = self._hash(child.text, child.begin)
        while key in parent.children:
            key += 1
        parent.children[key] = child
        child.parent = parent

    def _take_down(self, child: Span) -> None:
        assert child.parent is not None
        key, siblings = self._hash(child.text, child.begin), child.parent.children
        while siblings[key] is not child:
            key += 1
        del siblings[key]
        # What stood behind it under the next numbers is hung again, to be found without a gap.
        key += 1
        while (other := siblings.pop(key, None)) is not None:
            self._hang(other, child.parent)
            key += 1
        child.parent = None

    def _route(self, token_ids: list[int], max_blocks: int) -> list[tuple[Span, int]]:
        node, at, route = self._root, 0, []
        most = min(max_blocks, len(token_ids) // self.block_size)
        while at < most and (child := self._find(node, token_ids, at)) is not None:
            longest = min(len(child), most - at)
            same = 1
            while same < longest and self._agrees(child, same, token_ids, at + same):
                same += 1
            route.append((child, same))
            if same < len(child):
                break
            node, at = child, at + same
        return route

    def peek(self, token_ids: list[int], max_blocks: int) -> list[int]:
        """Blocks of the longest cached prefix. Changes nothing."""
        return [
            block
            for span, same in self._route(token_ids, max_blocks)
            for block in span.filed[span.begin : span.begin + same]
        ]

    def match_prefix(self, token_ids: list[int], max_blocks: int) -> tuple[list[int], Span]:
        """(blocks, node) of the longest cached prefix."""
        self._now = next(self._ticks)
        blocks, end = [], self._root
        for span, same in self._route(token_ids, max_blocks):
            end = span if same == len(span) else self.split(span, same)
            end.last_used = self._now
            blocks.extend(end.filed[end.begin : end.end])
        if end.is_evictable:
            self._queue.push(end)  # type: ignore[arg-type]
        return blocks, end

    def insert(self, token_ids: list[int], block_ids: Sequence[int]) -> tuple[int, Span]:
        """What is not there yet is copied as a text of its own."""
        matched, end = self.match_prefix(token_ids, len(block_ids))
        existing = len(matched)
        if existing < len(block_ids):
            text = tuple(token_ids[existing * self.block_size : len(block_ids) * self.block_size])
            filed = tuple(block_ids[existing:])
            leaf = Span(text, filed, 0, len(filed), last_used=self._now)
            self._hang(leaf, end)
            self._counts["blocks"] += len(leaf)
            self._queue.push(leaf)  # type: ignore[arg-type]
            end = leaf
        return existing, end

    def split(self, node: Span, num_blocks: int) -> Span:
        """Two spans of the same text."""
        parent, border = node.parent, node.begin + num_blocks
        assert parent is not None
        self._take_down(node)
        upper = Span(node.text, node.filed, node.begin, border)
        upper.lock_count, upper.last_used = node.lock_count, node.last_used
        node.begin = border
        self._hang(upper, parent)
        self._hang(node, upper)
        return upper

    def _up(self, node: Span) -> Iterator[Span]:
        while node.parent is not None:
            yield node
            node = node.parent

    def lock(self, node: Span) -> None:
        """Every span on the way up."""
        for span in self._up(node):
            span.lock_count += 1
            if span.lock_count == 1:
                self._counts["locked"] += len(span)

    def unlock(self, node: Span) -> None:
        """Back."""
        for span in self._up(node):
            span.lock_count -= 1
            if span.lock_count == 0:
                self._counts["locked"] -= len(span)
                if not span.children:
                    self._queue.push(span)  # type: ignore[arg-type]

    def path_blocks(self, node: Span) -> list[int]:
        """From the root down."""
        path = list(self._up(node))
        return [block for span in path[::-1] for block in span.filed[span.begin : span.end]]

    def evict(self, num_blocks: int) -> list[int]:
        """The end of a leaf's span moves towards its beginning."""
        gone: list[int] = []
        while len(gone) < num_blocks:
            leaf: Span | None = self._queue.pop()  # type: ignore[assignment]
            if leaf is None:
                break
            stop = max(leaf.begin, leaf.end - (num_blocks - len(gone)))
            gone.extend(leaf.filed[i] for i in range(leaf.end - 1, stop - 1, -1))
            if stop > leaf.begin:
                leaf.end = stop
                self._queue.push(leaf)  # type: ignore[arg-type]
                continue
            parent = leaf.parent
            self._take_down(leaf)
            if parent is not None and parent.is_evictable:
                self._queue.push(parent)  # type: ignore[arg-type]
        self._counts["blocks"] -= len(gone)
        return gone

    def all_blocks(self) -> list[int]:
        """Every block."""
        return [b for span in self._spans() for b in span.filed[span.begin : span.end]]

    def _spans(self) -> Iterator[Span]:
        waiting = [*self._root.children.values()]
        while waiting:
            span = waiting.pop()
            waiting.extend(span.children.values())
            yield span

    def check(self) -> None:
        """Raise InvariantError unless spans, counters and queue agree."""
        blocks, locked = self.all_blocks(), 0
        queued = self._queue.current()
        for span in self._spans():
            locked += len(span) * (span.lock_count > 0)
            if len(span) < 1 or span.lock_count < sum(c.lock_count for c in span.children.values()):
                raise InvariantError(
                    f"the span {span.begin} to {span.end} is empty or locked wrongly"
                )
            if span.is_evictable and span not in queued:
                raise InvariantError("an unlocked leaf is not in the queue")
        if len(blocks) != len(set(blocks)):
            raise InvariantError(f"a block appears twice: {sorted(blocks)}")
        if self._counts != {"blocks": len(blocks), "locked": locked}:
            raise InvariantError(f"{len(blocks)} blocks, {locked} locked: counted {self._counts}")
