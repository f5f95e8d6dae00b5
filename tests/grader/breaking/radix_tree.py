"""What a learner may write after lab 4: each attack asks one sentence of the contract."""

from typing import Any

SIX = [1, 2, 3, 4, 5, 6]


def attack_limit_and_halves(part: Any) -> Any:
    tree = part.RadixTree(2)
    tree.insert(SIX, [10, 11, 12])
    blocks, node = tree.match_prefix(SIX, 2)
    return tree.peek(SIX, 1), blocks, tree.path_blocks(node), tree.peek([1, 2, 3, 9], 3)


def attack_match_ends_in_a_node(part: Any) -> Any:
    tree = part.RadixTree(2)
    tree.insert([1, 1, 2, 2], [10, 11])
    tree.insert([1, 1, 2, 2, 3, 3], [0, 0, 12])
    found = tree.peek([1, 1, 3, 3], 5), tree.match_prefix([1, 1, 3, 3], 5)[0]
    blocks, node = tree.match_prefix([1, 1, 2, 2, 3, 3], 3)
    return found, blocks, tree.path_blocks(node)


def attack_insert(part: Any) -> Any:
    tree, blocks = part.RadixTree(2), [10, 11, 12]
    first, _ = tree.insert([*SIX, 7], blocks)
    blocks.append(99)
    again, node = tree.insert([1, 2, 3, 4, 8, 8], [20, 21, 22])
    return first, again, tree.path_blocks(node), sorted(tree.all_blocks()), tree.num_blocks


def attack_lists_are_ones_own(part: Any) -> Any:
    tree = part.RadixTree(2)
    tree.insert(SIX, [10, 11, 12])
    tree.peek(SIX, 3).clear()
    tree.match_prefix(SIX, 3)[0].clear()
    return tree.peek(SIX, 3)


def attack_locks_count(part: Any) -> Any:
    tree = part.RadixTree(2)
    _, node = tree.insert(SIX, [10, 11, 12])
    tree.lock(node)
    tree.lock(node)
    tree.unlock(node)
    held = tree.num_evictable, tree.evict(3)
    tree.unlock(node)
    return held, tree.num_evictable, tree.evict(3), tree.num_blocks


def attack_a_lock_protects_the_path(part: Any) -> Any:
    tree = part.RadixTree(2)
    tree.insert(SIX, [10, 11, 12])
    _, below = tree.insert([1, 2, 3, 4, 8, 8], [10, 11, 20])
    tree.lock(below)
    gone = tree.num_evictable, tree.evict(9), tree.num_blocks
    tree.unlock(below)
    return gone, tree.num_evictable, tree.evict(9)


def attack_split_keeps_locks_and_children(part: Any) -> Any:
    tree = part.RadixTree(2)
    _, node = tree.insert([1, 2, 3, 4], [10, 11])
    tree.insert([1, 2, 3, 4, 5, 5], [10, 11, 12])
    tree.lock(node)
    upper = tree.split(node, 1)
    paths = tree.path_blocks(upper), tree.path_blocks(node)
    counts = tree.num_evictable, tree.peek([1, 2, 3, 4, 5, 5], 3), tree.evict(9)
    tree.unlock(node)
    return paths, counts, tree.num_evictable, tree.evict(9)


def attack_two_blocks_split(part: Any) -> Any:
    tree = part.RadixTree(2)
    _, node = tree.insert([1, 2, 3, 4, 5, 6, 7, 8], [10, 11, 12, 13])
    tree.split(node, 2)
    tree.insert([1, 2, 3, 4, 9, 9], [10, 11, 14])
    return tree.peek([1, 2, 3, 4, 5, 6, 7, 8], 4), tree.peek([1, 2, 3, 4, 9, 9], 4)


def attack_oldest_goes_first(part: Any) -> Any:
    tree = part.RadixTree(1)
    for token in (1, 2, 3):
        tree.insert([token], [token])
    tree.match_prefix([1], 1)
    tree.peek([2], 1)
    tree.insert([3], [3])
    return tree.evict(1), tree.evict(1), tree.evict(1)


def attack_locking_is_no_use(part: Any) -> Any:
    tree = part.RadixTree(1)
    _, first = tree.insert([1], [1])
    tree.insert([2], [2])
    tree.lock(first)
    tree.unlock(first)
    return tree.evict(1)


def attack_the_end_of_a_leaf_goes(part: Any) -> Any:
    tree = part.RadixTree(2)
    tree.insert(SIX, [10, 11, 12])
    gone = tree.evict(1)
    left = tree.peek(SIX, 3), tree.num_blocks, tree.num_evictable
    again, node = tree.insert(SIX, [10, 11, 30])
    return gone, left, again, tree.path_blocks(node), tree.evict(3), tree.evict(1)


def attack_parents_become_leaves(part: Any) -> Any:
    tree = part.RadixTree(1)
    tree.insert([1, 2], [1, 2])
    tree.insert([1, 3], [1, 3])
    tree.match_prefix([1, 2], 2)
    tree.insert([7], [7])
    tree.match_prefix([1, 3], 2)
    return [tree.evict(1) for _ in range(5)], tree.num_blocks


def attack_a_split_is_as_old(part: Any) -> Any:
    tree = part.RadixTree(1)
    tree.insert([1, 2], [1, 2])
    tree.insert([5, 6], [5, 6])
    _, node = tree.insert([1, 2], [1, 2])
    tree.match_prefix([5, 6], 2)
    tree.split(node, 1)
    return [tree.evict(1) for _ in range(4)]
