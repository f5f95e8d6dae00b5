"""Trees to begin a test with, and how a test gives up where another task's claim does not hold."""

from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any, TypeVar

from grader.kit import Mismatch, quietly, watch
from solutions.radix_tree.naive import NaivePrefixCache
from yaie.core.errors import InvariantError

F = TypeVar("F", bound=Callable[..., Any])
Insert = tuple[list[int], list[int]]


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


def tree_of(part: ModuleType, *inserts: Insert, block_size: int = 2) -> Any:
    """A tree that was given these (token_ids, blocks)."""
    tree = watch(part.RadixTree(block_size), "tree", lambda tree: f"blocks {tree.all_blocks()}")
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
    for token_ids, blocks in inserts:
        rely(quietly(tree).peek(token_ids, len(blocks)) == naive.peek(token_ids, len(blocks)))
    rely(sorted(quietly(tree).all_blocks()) == sorted(naive.evictable()))
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


def expect_sound(tree: Any, why: str = "") -> None:
    """check() finds nothing."""
    try:
        quietly(tree).check()
    except InvariantError as error:
        raise Mismatch(f"check() finds the tree broken: {error}", why=why) from error


def is_sound(tree: Any) -> bool:
    try:
        expect_sound(tree)
    except Mismatch:
        return False
    return True
