"""Trees to begin a test with, and how a test gives up where another task's claim does not hold."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import ModuleType
from typing import Any, TypeVar

from grader.kit import Mismatch, note, quietly, watch
from grader.kit.script import show
from grader.suites.radix_tree.shape import fault_in, key_of
from solutions.radix_tree.naive import NaivePrefixCache
from yaie.core.errors import InvariantError

F = TypeVar("F", bound=Callable[..., Any])
Insert = tuple[list[int], list[int]]

QUEUE = (
    "The queue of leaves learns of a leaf only from you: push a node when it becomes an unlocked "
    "leaf, and again when it is used."
)
MOST_DEEP = 20
"""Levels of a tree that are drawn: one that leads back to itself has no end."""


class GivenUp(Exception):
    """What a test builds on is wrong, and some other task's test says so."""


def gives_up(test: F) -> F:
    """Goes below `@task`, on a test that begins with `filed` or asks `rely`."""

    @wraps(test)
    def relying(*args: Any, **kwargs: Any) -> None:
        try:
            test(*args, **kwargs)
        except GivenUp:
            pass

    return relying  # type: ignore[return-value]


def rely(condition: object) -> None:
    """Go on only if what another task grades is so."""
    if not condition:
        raise GivenUp


def drawn(tree: Any) -> str:
    """The tree with its locks and last uses if it is made of the given nodes; its blocks if not."""
    summary = f"{tree.num_blocks} blocks, {tree.num_evictable} of them evictable"
    root = getattr(tree, "_root", None)
    if not hasattr(root, "children"):
        return f"{summary}: {sorted(tree.all_blocks())}"
    return "\n".join([summary, "root", *_branches(root, 1, getattr(tree, "block_size", 0), set())])


def _branches(node: Any, depth: int, size: int, seen: set[int]) -> Iterator[str]:
    for key, child in node.children.items() if depth < MOST_DEEP else ():
        locks = f", locked {child.lock_count} times" if child.lock_count else ""
        line = f"blocks {child.blocks}, tokens {child.tokens}, used at {child.last_used}{locks}"
        wrong = f", under the key {show(key)}" if size and key != key_of(child, size) else ""
        again = ", a second time" if id(child) in seen else ""
        yield "  " * depth + line + wrong + again
        if not again:
            seen.add(id(child))
            yield from _branches(child, depth + 1, size, seen)


@contextmanager
def relying_on_all() -> Iterator[None]:
    """Calls that another task grades: where they fail in any way, the test gives up."""
    try:
        yield
    except NotImplementedError:
        raise
    except Exception as error:
        raise GivenUp from error


def tree_of(part: ModuleType, *inserts: Insert, block_size: int = 2) -> Any:
    """A tree that was given these (token_ids, blocks)."""
    note(f"tree = RadixTree(block_size={block_size})")
    tree = watch(part.RadixTree(block_size), "tree", drawn)
    for token_ids, blocks in inserts:
        tree.insert(token_ids, blocks)
    return tree


def filed(part: ModuleType, *inserts: Insert) -> tuple[Any, list[Any]]:
    """The same, for tests of other tasks than insert's; and the nodes that insert returned."""
    tree, naive, nodes = tree_of(part), NaivePrefixCache(2), []
    for token_ids, blocks in inserts:
        existing, node = tree.insert(token_ids, blocks)
        rely(existing == naive.insert(token_ids, blocks))
        rely(quietly(tree).path_blocks(node) == naive.peek(token_ids, len(blocks)))
        nodes.append(node)
    for node, (token_ids, blocks) in zip(nodes, inserts, strict=True):
        path = naive.peek(token_ids, len(blocks))
        rely(quietly(tree).peek(token_ids, len(blocks)) == path)
        rely(quietly(tree).path_blocks(node) == path)
    rely(sorted(quietly(tree).all_blocks()) == sorted(naive.evictable()))
    rely(is_sound(tree))
    return tree, nodes


def found(tree: Any, token_ids: list[int], blocks: list[int]) -> Any:
    """The node of a match that finds just these blocks, and loses none."""
    before = sorted(quietly(tree).all_blocks())
    matched, node = tree.match_prefix(token_ids, len(blocks))
    rely(matched == blocks and quietly(tree).path_blocks(node) == blocks)
    rely(sorted(quietly(tree).all_blocks()) == before)
    return node


def locks_work(part: ModuleType) -> bool:
    """Whether lock and unlock count, and protect the path, where nothing is split."""
    tree = part.RadixTree(2)
    tree.insert([1, 2], [10])
    _, node = tree.insert([1, 2, 3, 4], [0, 11])
    seen = []
    for call in (tree.lock, tree.lock, tree.unlock, tree.unlock):
        call(node)
        seen.append(tree.num_evictable)
    return seen == [0, 0, 0, 2]


_uppers: list[Any] = []
"""Nodes that `split` has returned, in any test of this process."""
OLD_NODE = (
    "`split` returned {name}, a node that an earlier call has returned. Each call makes a node of its "
    "own: the one that is used again still has what it was given then."
)


def why_split(tree: Any, upper: Any, otherwise: str = "") -> str:
    """Why a tree is not as a split should leave it, as far as the tree shows it. upper: what the split
    returned, of nodes that are objects of their own."""
    is_old = hasattr(upper, "blocks") and any(upper is old for old in _uppers)
    return OLD_NODE.format(name=show(upper)) if is_old else fault_in(tree) or otherwise


def later_nodes_differ(*uppers: Any) -> None:
    """From now on these are nodes that an earlier call has returned."""
    _uppers.extend(uppers)


def splits_work(part: ModuleType) -> bool:
    """Whether split cuts nodes that are not locked, with and without children, and changes no more."""
    for longer in ([], [3, 3]):
        tree = part.RadixTree(2)
        _, beside = tree.insert([5, 5, 6, 6], [20, 21])
        _, node = tree.insert([1, 1, 2, 2], [10, 11])
        tree.insert([1, 1, 2, 2, *longer], [0, 0, *longer[1:]])
        tree.match_prefix([9, 9], 1)  # time goes by
        if not is_sound(tree):
            return True  # before anything is split
        later_nodes_differ(tree.split(beside, 1))
        upper = tree.split(node, 1)
        later_nodes_differ(upper)
        paths = tree.path_blocks(upper), tree.path_blocks(node)
        found = tree.peek([1, 1, 2, 2, 3, 3], 3)
        if paths != ([10], [10, 11]) or found != [10, 11, *longer[1:]] or not is_sound(tree):
            return False
        if tree.peek([5, 5, 6, 6], 2) != [20, 21] or tree.path_blocks(beside) != [20, 21]:
            return False
    return True


def expect_sound(tree: Any, why: str = "", *, missed: str = QUEUE) -> None:
    """check() finds nothing. missed: the advice if it finds a leaf that the queue does not know."""
    try:
        quietly(tree).check()
    except InvariantError as error:
        why = missed if "eviction misses" in str(error) else fault_in(tree) or why
        raise Mismatch(f"check() finds the tree broken: {error}", why=why) from error


def is_sound(tree: Any) -> bool:
    try:
        expect_sound(tree)
    except Mismatch:
        return False
    return True
