"""What a call costs depends on the blocks it touches, not on how much is cached."""

from collections.abc import Callable

import pytest

from grader.kit.cost import count_calls
from solutions.radix_tree import RadixTree

SIZE = 4
FEW, MANY = 20, 2000


def crowded(num_prefixes: int) -> RadixTree:
    """Prefixes of 4 blocks that share the first; a block's number says where it belongs."""
    tree = RadixTree(SIZE)
    for i in range(num_prefixes):
        tree.insert(prompt(i), [0, *range(3 * i + 1, 3 * i + 4)])
    return tree


def prompt(i: int) -> list[int]:
    return [0] * SIZE + [i + 1] * (3 * SIZE)


def lock_and_unlock(tree: RadixTree) -> None:
    _, node = tree.match_prefix(prompt(3), 3)
    tree.lock(node)
    tree.unlock(node)


CALLS: dict[str, Callable[[RadixTree], object]] = {
    "match": lambda tree: tree.match_prefix(prompt(5), 4),
    "peek": lambda tree: tree.peek(prompt(5), 4),
    "insert": lambda tree: tree.insert([7] * 16, [-1, -2, -3, -4]),
    "lock": lock_and_unlock,
    "counters": lambda tree: (tree.num_blocks, tree.num_evictable),
}


def cost(call: Callable[[RadixTree], object], num_prefixes: int) -> int:
    tree = crowded(num_prefixes)
    return count_calls(lambda: call(tree))


@pytest.mark.parametrize("name", CALLS)
def test_cost_does_not_grow_with_what_is_cached(name: str) -> None:
    assert cost(CALLS[name], MANY) == cost(CALLS[name], FEW)


def test_evicting_costs_hardly_more_when_more_is_cached() -> None:
    assert cost(lambda tree: tree.evict(30), MANY) <= cost(lambda tree: tree.evict(30), FEW) + 10


def test_using_a_leaf_over_and_over_stays_cheap() -> None:
    """Each use enters the leaf into the queue anew; entries that are out of date do not pile up."""
    tree = crowded(50)
    first = count_calls(lambda: [tree.match_prefix(prompt(i % 50), 4) for i in range(1000)])
    later = count_calls(lambda: [tree.match_prefix(prompt(i % 50), 4) for i in range(1000)])
    assert later <= 1.2 * first
    assert count_calls(lambda: tree.evict(1)) < 1000


def test_match_costs_its_blocks_not_its_tokens() -> None:
    def cost_of_match(size: int) -> int:
        tree, token_ids = RadixTree(size), list(range(20 * size))
        tree.insert(token_ids, list(range(20)))
        return count_calls(lambda: tree.match_prefix(token_ids, 20))

    assert cost_of_match(64) == cost_of_match(4)
