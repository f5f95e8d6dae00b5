"""RadixTree, rule by rule. Blocks have two tokens; block 10 has the first two of A, and so on."""

from typing import Any

import pytest

from solutions.radix_tree import RadixTree
from yaie.core.errors import InvariantError

A = [1, 2, 3, 4, 5, 6, 7, 8]
A_BLOCKS = [10, 11, 12, 13]
# Like A in its first two blocks.
B = [1, 2, 3, 4, 9, 9]
B_BLOCKS = [10, 11, 22]


@pytest.fixture
def tree() -> RadixTree:
    return RadixTree(2)


def lock_prefix(tree: RadixTree, token_ids: list[int], max_blocks: int) -> Any:
    _, node = tree.match_prefix(token_ids, max_blocks)
    tree.lock(node)
    return node


def test_empty_tree_matches_nothing_at_its_root(tree: RadixTree) -> None:
    blocks, node = tree.match_prefix(A, 4)
    assert blocks == tree.path_blocks(node) == []


@pytest.mark.parametrize(
    ("token_ids", "max_blocks", "found"),
    [
        (A, 4, [10, 11, 12, 13]),
        (A, 3, [10, 11, 12]),
        (A, 0, []),
        (A, 9, [10, 11, 12, 13]),
        ([*A, 9, 9], 5, [10, 11, 12, 13]),
        (A[:5], 9, [10, 11]),
        (A[:1], 9, []),
        ([], 9, []),
        (B, 3, [10, 11]),
        ([1, 3], 1, []),
        ([1, 2, 3, 5], 2, [10]),
    ],
)
def test_longest_prefix_of_whole_blocks(
    tree: RadixTree, token_ids: list[int], max_blocks: int, found: list[int]
) -> None:
    tree.insert(A, A_BLOCKS)
    assert tree.peek(token_ids, max_blocks) == found
    blocks, node = tree.match_prefix(token_ids, max_blocks)
    assert blocks == tree.path_blocks(node) == found
    tree.check()


def test_inserting_again_keeps_the_trees_own_blocks(tree: RadixTree) -> None:
    assert tree.insert(A, A_BLOCKS)[0] == 0
    existing, node = tree.insert(A, [30, 31, 32, 33])
    assert existing == 4
    assert tree.path_blocks(node) == A_BLOCKS
    assert tree.num_blocks == 4


def test_insert_takes_over_only_the_rest(tree: RadixTree) -> None:
    tree.insert(A, A_BLOCKS)
    existing, node = tree.insert(B, [30, 31, 22])
    assert existing == 2
    assert tree.path_blocks(node) == B_BLOCKS
    assert sorted(tree.all_blocks()) == [10, 11, 12, 13, 22]
    tree.check()


def test_insert_of_fewer_blocks_than_tokens_files_just_those(tree: RadixTree) -> None:
    tree.insert(A, A_BLOCKS[:3])
    assert tree.peek(A, 4) == [10, 11, 12]


def test_insert_of_a_shorter_prefix_adds_nothing(tree: RadixTree) -> None:
    tree.insert(A, A_BLOCKS)
    existing, node = tree.insert(A[:4], [30, 31])
    assert existing == 2
    assert tree.path_blocks(node) == [10, 11]
    assert tree.num_blocks == 4


def test_peek_changes_nothing(tree: RadixTree) -> None:
    tree.insert(A, A_BLOCKS)
    tree.insert([9, 9], [50])
    tree.peek(A, 4)
    assert tree.evict(1) == [13], "still the least recently used"


def test_match_marks_the_path_as_used(tree: RadixTree) -> None:
    tree.insert(A, A_BLOCKS)
    tree.insert([9, 9], [50])
    tree.match_prefix(A, 4)
    assert tree.evict(1) == [50]


def test_match_in_the_middle_leaves_the_rest_unused(tree: RadixTree) -> None:
    tree.insert(A, A_BLOCKS)
    tree.insert([9, 9], [50])
    tree.match_prefix(A, 2)
    assert tree.evict(4) == [13, 12, 50, 11]


def test_eviction_eats_leaves_from_their_ends(tree: RadixTree) -> None:
    tree.insert(A, A_BLOCKS)
    assert tree.evict(2) == [13, 12]
    assert tree.peek(A, 4) == [10, 11]
    tree.check()


def test_eviction_reaches_a_parent_after_its_children(tree: RadixTree) -> None:
    tree.insert(A, A_BLOCKS)
    tree.insert(B, B_BLOCKS)
    assert tree.evict(5) == [13, 12, 22, 11, 10]
    assert (tree.num_blocks, tree.num_evictable) == (0, 0)
    tree.check()


def test_eviction_gives_up_when_nothing_is_left(tree: RadixTree) -> None:
    tree.insert(A, A_BLOCKS)
    assert len(tree.evict(9)) == 4
    assert tree.evict(1) == []


def test_evicting_nothing_changes_nothing(tree: RadixTree) -> None:
    tree.insert(A, A_BLOCKS)
    assert tree.evict(0) == []
    assert tree.num_evictable == 4


def test_locked_leaf_is_not_evicted(tree: RadixTree) -> None:
    _, node = tree.insert(A, A_BLOCKS)
    tree.lock(node)
    assert tree.evict(9) == []
    tree.unlock(node)
    assert len(tree.evict(9)) == 4


def test_lock_protects_the_node_itself_and_all_above(tree: RadixTree) -> None:
    tree.insert(A, A_BLOCKS)
    tree.insert(B, B_BLOCKS)
    lock_prefix(tree, B, 3)
    assert tree.num_evictable == 2
    assert tree.evict(9) == [13, 12]
    assert tree.peek(B, 3) == B_BLOCKS
    tree.check()


def test_lock_leaves_what_hangs_below_evictable(tree: RadixTree) -> None:
    tree.insert(A, A_BLOCKS)
    lock_prefix(tree, A, 1)
    assert tree.evict(9) == [13, 12, 11]


def test_locks_count(tree: RadixTree) -> None:
    tree.insert(A, A_BLOCKS)
    first, second = lock_prefix(tree, A, 4), lock_prefix(tree, A, 4)
    tree.unlock(first)
    assert tree.evict(9) == []
    tree.unlock(second)
    assert tree.num_evictable == 4


def test_root_can_be_locked_and_unlocked(tree: RadixTree) -> None:
    tree.insert(B, B_BLOCKS)
    root = lock_prefix(tree, [7, 7], 1)
    assert len(tree.evict(9)) == 3
    tree.unlock(root)
    tree.check()


def test_split_gives_both_halves_the_locks(tree: RadixTree) -> None:
    _, node = tree.insert(A, A_BLOCKS)
    tree.lock(node)
    tree.lock(node)
    upper = tree.split(node, 1)
    tree.check()
    assert (tree.path_blocks(upper), tree.path_blocks(node)) == ([10], A_BLOCKS)
    tree.unlock(node)
    assert tree.num_evictable == 0
    tree.unlock(node)
    assert tree.num_evictable == 4
    tree.check()


def test_split_of_an_unlocked_node_locks_neither_half(tree: RadixTree) -> None:
    _, node = tree.insert(A, A_BLOCKS)
    tree.split(node, 2)
    assert tree.evict(9) == [13, 12, 11, 10]


def test_lock_taken_before_a_split_still_means_the_longer_prefix(tree: RadixTree) -> None:
    node = tree.insert(A, A_BLOCKS)[1]
    tree.lock(node)
    tree.insert(B, B_BLOCKS)
    assert tree.path_blocks(node) == A_BLOCKS
    assert tree.evict(9) == [22]
    tree.unlock(node)
    assert tree.num_evictable == 4
    tree.check()


def test_lock_on_the_upper_half_leaves_the_lower_evictable(tree: RadixTree) -> None:
    _, node = tree.insert(A, A_BLOCKS)
    upper = tree.split(node, 2)
    tree.lock(upper)
    assert tree.evict(9) == [13, 12]
    tree.unlock(upper)
    assert tree.evict(9) == [11, 10]


def test_split_keeps_every_prefix(tree: RadixTree) -> None:
    tree.insert(A, A_BLOCKS)
    tree.insert(B, B_BLOCKS)
    tree.split(tree.match_prefix(A, 2)[1], 1)
    assert tree.peek(A, 4) == A_BLOCKS
    assert tree.peek(B, 3) == B_BLOCKS
    tree.check()


def test_halves_of_a_split_were_used_when_the_whole_was(tree: RadixTree) -> None:
    _, node = tree.insert(A, A_BLOCKS)
    tree.insert([9, 9], [50])
    tree.split(node, 2)
    assert tree.evict(4) == [13, 12, 11, 10]


def test_tokens_that_differ_inside_a_block_share_none_of_it(tree: RadixTree) -> None:
    tree.insert([1, 2, 3, 4], [10, 11])
    existing, _ = tree.insert([1, 2, 3, 5], [10, 21])
    assert existing == 1
    assert tree.peek([1, 2, 3, 5], 2) == [10, 21]
    tree.check()


def test_tree_keeps_no_reference_to_the_callers_list(tree: RadixTree) -> None:
    token_ids, blocks = list(A), list(A_BLOCKS)
    tree.insert(token_ids, blocks)
    token_ids[0] = blocks[0] = 99
    assert tree.peek(A, 4) == A_BLOCKS


def test_check_names_a_node_that_is_locked_less_often_than_its_children(tree: RadixTree) -> None:
    _, node = tree.insert(A, A_BLOCKS)
    upper = tree.split(node, 2)
    tree.lock(node)
    upper.lock_count = 0
    with pytest.raises(InvariantError, match=r"\[10, 11\] is locked less often"):
        tree.check()
