"""A radix tree drawn from the outside: by what its public methods answer, whatever it is made of."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from matplotlib.axes import Axes

from yaie.core.contracts import RadixTree
from yaie.explore.draw import BLUE, GREY, INK, ORANGE, PALE, PAPER, board, box

GAP = 0.8  # between a node and its children, in blocks


@dataclass(slots=True)
class Shown:
    """A node as it is drawn: its own blocks with the text of each, left and top in boxes."""

    path: tuple[int, ...]
    texts: list[str]
    blocks: list[int]
    locked: int
    children: list["Shown"] = field(default_factory=list)
    x: float = 0.0
    y: float = 0.0


class TreeView:
    """Wraps a RadixTree of texts, one token a character, and remembers what it was asked.

    `peek` tells which blocks are there, and the nodes that the tree handed out tell where they end.
    """

    def __init__(self, tree: RadixTree) -> None:
        self.tree = tree
        self._texts: list[str] = []
        self._ends: set[tuple[int, ...]] = set()
        self._locks: dict[tuple[int, ...], int] = {}
        self._next_block = 0

    def insert(self, text: str) -> Any:
        """File a text's full blocks under fresh block numbers; returns the node."""
        token_ids = tokens(text)
        count = len(text) // self.tree.block_size
        known = self.tree.peek(token_ids, count)
        fresh = list(range(self._next_block, self._next_block + count - len(known)))
        self._next_block += len(fresh)
        _, node = self.tree.insert(token_ids, [*known, *fresh])
        self._texts.append(text)
        return self._seen(node)

    def match(self, text: str) -> tuple[list[int], Any]:
        """The blocks of the longest prefix that is cached, and the node that stands for it."""
        blocks, node = self.tree.match_prefix(tokens(text), len(text) // self.tree.block_size)
        return blocks, self._seen(node)

    def lock(self, node: Any) -> None:
        self._count(node, 1)
        self.tree.lock(node)

    def unlock(self, node: Any) -> None:
        self._count(node, -1)
        self.tree.unlock(node)

    def evict(self, num_blocks: int) -> list[int]:
        return self.tree.evict(num_blocks)

    def _seen(self, node: Any) -> Any:
        self._ends.add(tuple(self.tree.path_blocks(node)))
        return node

    def _count(self, node: Any, change: int) -> None:
        path = tuple(self.tree.path_blocks(node))
        self._locks[path] = self._locks.get(path, 0) + change

    def shown(self) -> list[Shown]:
        """The root's children. A node ends where the tree branches, stops, or handed out a node."""
        steps: dict[tuple[int, ...], str] = {}  # a path of blocks -> the text of its last one
        size = self.tree.block_size
        for text in self._texts:
            path = tuple(self.tree.peek(tokens(text), len(text) // size))
            for end in range(1, len(path) + 1):
                steps[path[:end]] = text[(end - 1) * size : end * size]
        return self._children((), steps)

    def _children(self, path: tuple[int, ...], steps: dict[tuple[int, ...], str]) -> list[Shown]:
        nodes = []
        for begin in [step for step in steps if step[:-1] == path]:
            end, after = begin, _after(begin, steps)
            while len(after) == 1 and end not in self._ends:
                end, after = after[0], _after(after[0], steps)
            own = [end[:length] for length in range(len(begin), len(end) + 1)]
            locked = sum(n for lock, n in self._locks.items() if lock[: len(end)] == end)
            texts, blocks = [steps[step] for step in own], [step[-1] for step in own]
            nodes.append(Shown(end, texts, blocks, locked, self._children(end, steps)))
        return nodes

    def draw(
        self,
        ax: Axes,
        title: str = "",
        *,
        nodes: list[Shown] | None = None,
        gone: Sequence[int] = (),
    ) -> None:
        """Nodes from left to right; each box is a block: its text, and its number below.

        nodes: what `shown` said earlier, to draw what was. gone: blocks to strike out of it.
        """
        roots = self.shown() if nodes is None else nodes
        height = _place(roots, GAP, 0.0)
        width = max((n.x + len(n.blocks) for n in _all(roots)), default=GAP)
        board(ax, width, max(height, 1.0), title)
        middle = max(height - 1.3, 0) / 2
        ax.plot(0, middle + 0.5, "o", color=INK, markersize=6)
        for node in roots:
            _draw_edge(ax, 0, middle, node)
        for node in _all(roots):
            for child in node.children:
                _draw_edge(ax, node.x + len(node.blocks), node.y, child)
        for node in _all(roots):
            _draw_node(ax, node, gone)


def tokens(text: str) -> list[int]:
    """One token a character."""
    return [ord(letter) for letter in text]


def _after(path: tuple[int, ...], steps: dict[tuple[int, ...], str]) -> list[tuple[int, ...]]:
    return [step for step in steps if step[:-1] == path]


def _place(nodes: list[Shown], x: float, y: float) -> float:
    """Give a row to each leaf, and a parent the middle of its children; returns the height used."""
    for node in nodes:
        node.x, below = x, y
        y = _place(node.children, x + len(node.blocks) + GAP, y) if node.children else y + 1.5
        ys = [child.y for child in node.children]
        node.y = (ys[0] + ys[-1]) / 2 if ys else below
    return y


def _all(nodes: list[Shown]) -> list[Shown]:
    return [each for node in nodes for each in (node, *_all(node.children))]


def _draw_edge(ax: Axes, x: float, y: float, child: Shown) -> None:
    bend = (x + child.x) / 2
    ax.plot(
        [x, bend, bend, child.x], [y + 0.5, y + 0.5, child.y + 0.5, child.y + 0.5],
        color=GREY, linewidth=1.2, zorder=0,
    )  # fmt: skip


def _draw_node(ax: Axes, node: Shown, gone: Sequence[int]) -> None:
    colour = BLUE if node.locked else ORANGE
    for index, (text, block) in enumerate(zip(node.texts, node.blocks, strict=True)):
        is_gone = block in gone
        box(
            ax, node.x + index, node.y, text.replace(" ", "␣"), PALE if is_gone else colour,
            hatch="////" if is_gone else "", edge=GREY if is_gone else PAPER, line=0.8,
        )  # fmt: skip
        ax.text(
            node.x + index + 0.5, node.y + 1.02, str(block), ha="center", va="top",
            fontsize=6.5, color=INK,
        )  # fmt: skip
    box(ax, node.x, node.y, "", "none", width=len(node.blocks), edge=INK, line=1.2)
