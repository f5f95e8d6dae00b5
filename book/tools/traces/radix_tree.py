"""Requests A to D in a radix tree: match, split, insert, lock, eviction.

A character stands for a token and a block holds four. The tree is asked by its public methods alone:
what is drawn is what it answers, whatever it is made of.
"""

from dataclasses import dataclass
from typing import Any

from book.tools.traces import Part, Trace
from book.tools.traces._story import Story, counted, listed
from yaie.bench.evidence.four import QUESTIONS
from yaie.explore.tree import Shown, TreeView, tokens

LAB = "radix_tree"
BLOCK_SIZE = 4
SYSTEM = "Be brief. "


def record(part: Part) -> Trace:
    """Every call that the cache manager makes for four requests, with the tree after each."""
    desk = Desk(TreeView(part("radix_tree").RadixTree(BLOCK_SIZE)))
    desk.note("The tree is empty: a root, and nothing below it.")
    _the_first(desk)
    _the_second(desk)
    _the_third(desk)
    _unlock_and_another(desk)
    _eviction(desk)
    return desk.story.trace


@dataclass(slots=True)
class Match:
    """What a request found: how many blocks, and how many nodes there were before and after."""

    cached: int
    nodes_before: int
    nodes_after: int

    @property
    def has_split(self) -> bool:
        return self.nodes_after > self.nodes_before


class Desk:
    """Does for each request what the cache manager does, and notes when a block was last used."""

    def __init__(self, view: TreeView) -> None:
        self.view = view
        self.story = Story(block_size=BLOCK_SIZE)
        self._ends: dict[str, Any] = {}  # the node that each running request has locked
        self._used: dict[int, int] = {}  # block -> number of the call that last used it
        self._calls = 0

    @staticmethod
    def text(name: str) -> str:
        return SYSTEM + QUESTIONS[name]

    def match(self, name: str) -> Match:
        """A request comes: find its prefix, and lock it."""
        before = len(_flat(self.view.shown()))
        blocks, node = self.view.match(self.text(name))
        self._use(blocks)
        self._move_lock(name, node)
        return Match(len(blocks), before, len(_flat(self.view.shown())))

    def insert(self, name: str) -> list[int]:
        """Its prompt is computed: file it, lock all of it. Returns the blocks that are new."""
        before = set(self.view.tree.all_blocks())
        node = self.view.insert(self.text(name))
        path = self.view.tree.path_blocks(node)
        self._use(path)
        self._move_lock(name, node)
        return [block for block in path if block not in before]

    def end(self, name: str) -> None:
        """A request is done: nothing of it is locked any more."""
        self.view.unlock(self._ends.pop(name))

    def note(self, say: str, call: str = "", name: str = "", **marks: Any) -> None:
        """Keep the tree as it stands. call: what was asked; name: for which request's text."""
        text = self.text(name) if name else ""
        known = self.view.tree.peek(tokens(text), len(text) // BLOCK_SIZE)
        self.story.add(
            say,
            call=call,
            text=[text[at : at + BLOCK_SIZE] for at in range(0, len(text), BLOCK_SIZE)],
            **{"matched": len(known), **marks},
            nodes=[self._node(node) for node in _flat(self.view.shown())],
            evictable=self.view.tree.num_evictable,
            blocks=self.view.tree.num_blocks,
            running={name: self._end(node) for name, node in self._ends.items()},
        )

    def _end(self, node: Any) -> int:
        """The last block that a request has locked; -1 if it has none."""
        path = self.view.tree.path_blocks(node)
        return path[-1] if path else -1

    def _node(self, node: Shown) -> dict[str, Any]:
        """at: how many blocks stand above it on its path. used: the call that used it last."""
        return {
            "at": len(node.path) - len(node.blocks),
            "texts": node.texts,
            "blocks": node.blocks,
            "locks": node.locked,
            "used": self._used.get(node.blocks[-1], 0),
        }

    def _use(self, blocks: list[int]) -> None:
        self._calls += 1
        self._used |= dict.fromkeys(blocks, self._calls)

    def _move_lock(self, name: str, node: Any) -> None:
        """Lock the new end before the old one is let go, so that nothing is unprotected between."""
        self.view.lock(node)
        if name in self._ends:
            self.view.unlock(self._ends[name])
        self._ends[name] = node


def _flat(nodes: list[Shown]) -> list[Shown]:
    """Parents before their children, which follow in the order in which they came."""
    return [each for node in nodes for each in (node, *_flat(node.children))]


def _the_first(desk: Desk) -> None:
    found = desk.match("A")
    desk.note(
        f"A comes. match_prefix finds {counted(found.cached, 'block')}: its whole prompt must be "
        "computed.",
        "match A",
        "A",
    )
    fresh = desk.insert("A")
    text = desk.text("A")
    desk.note(
        f"A is computed and filed: one node of {counted(len(fresh), 'block')}. Of its {len(text)} "
        f"characters {len(text) % BLOCK_SIZE} is left over, which fills no block and stays out. A runs "
        "on this path, so it is locked.",
        "insert A",
        "A",
        fresh=fresh,
    )


def _the_second(desk: Desk) -> None:
    found = desk.match("B")
    same = _agree(desk.text("A"), desk.text("B"))
    split = (
        f"The node is cut after {counted(found.cached, 'block')}, so that B can lock what it uses and "
        "no more."
        if found.has_split
        else "No node is cut."
    )
    desk.note(
        f"B agrees with A in {same} characters, which is {found.cached} whole blocks. {split} What A "
        "locked stays locked, in both halves.",
        "match B",
        "B",
        matched=found.cached,
    )
    fresh = desk.insert("B")
    desk.note(
        f"B's other {counted(len(fresh), 'block')} are computed and filed as a second child. The shared "
        "node has two locks, one for each request that relies on it.",
        "insert B",
        "B",
        fresh=fresh,
    )


def _the_third(desk: Desk) -> None:
    found = desk.match("C")
    split = "The shared node is cut once more" if found.has_split else "No node is cut"
    desk.note(
        f"C agrees with both in {_agree(desk.text('A'), desk.text('C'))} characters: "
        f"{counted(found.cached, 'block')}. {split}; its two locks now hold for both parts, and C adds "
        "one above.",
        "match C",
        "C",
        matched=found.cached,
    )
    fresh = desk.insert("C")
    desk.note(
        f"C's {counted(len(fresh), 'block')} are filed. The node at the top holds the system prompt, "
        "which three requests share and which was computed once.",
        "insert C",
        "C",
        fresh=fresh,
    )


def _unlock_and_another(desk: Desk) -> None:
    desk.end("A")
    desk.note(
        "A is done and unlocks its path. Its blocks stay: another client may ask the same. "
        f"{counted(desk.view.tree.num_evictable, 'block')} could be evicted now.",
        "unlock A",
    )
    found = desk.match("D")
    fresh = desk.insert("D")
    split = (
        "its match ends inside a node" if found.has_split else "its match ends where a node ends"
    )
    desk.note(
        f"D comes, finds {counted(found.cached, 'block')} ({split}), and files "
        f"{counted(len(fresh), 'block')} of its own.",
        "match and insert D",
        "D",
        matched=found.cached,
        fresh=fresh,
    )
    desk.end("B")
    desk.note(
        f"B is done too. Evictable now: {counted(desk.view.tree.num_evictable, 'block')}, all that "
        "neither C nor D relies on.",
        "unlock B",
    )


def _eviction(desk: Desk) -> None:
    _evict(
        desk, 2, "Memory is short. The unlocked leaf that was used longest ago gives, from its end"
    )
    found = desk.match("A")
    desk.note(
        f"Another client asks A's question. {counted(found.cached, 'block')} of its seven are still "
        "there, and a match counts as a use: other leaves are older now.",
        "match A",
        "A",
        matched=found.cached,
    )
    left = desk.view.tree.num_evictable
    _evict(desk, left + 1, "Memory is short again. Everything that is left is locked")
    for name in ("A", "C", "D"):
        desk.end(name)
    desk.note(
        "A, C and D are done. No lock is left, and nothing is thrown away: the tree keeps what there is "
        f"room for. All {desk.view.tree.num_evictable} blocks could go, the ends before the middle.",
        "unlock A, C, D",
    )


def _evict(desk: Desk, count: int, why: str) -> None:
    """Evict, drawn as it was before, with what is gone struck out."""
    before = [desk._node(node) for node in _flat(desk.view.shown())]
    gone = desk.view.evict(count)
    desk.note(
        f"{why}: evict({count}) takes {counted(len(gone), 'block')}, {listed(gone)}.",
        f"evict {count}",
        gone=gone,
        before=before,
    )


def _agree(a: str, b: str) -> int:
    """How many characters two texts have in common at the front."""
    return next(i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)
