"""Many of everything: prompts that come and go, blocks of a node, locks of a node, leaves of a call."""

from itertools import permutations
from types import ModuleType
from typing import Any

from grader.kit import expect_equal, note, quietly, start_script, task
from grader.kit.memory import expect_keeps_nothing
from grader.suites.radix_tree.leaks import expect_no_leak_of
from grader.suites.radix_tree.trees import (
    expect_sound,
    filed,
    found,
    gives_up,
    is_sound,
    later_nodes_differ,
    locks_work,
    rely,
    splits_work,
    tree_of,
    why_split,
)

LONG = 70_000
"""Blocks of a prompt: more than 16 bits count."""
LOCKS = 300
"""Requests that share a prefix: more than 8 bits count."""
LEAVES = 2000
"""That go in one call: more than Python calls deep."""
CHURN = (
    "The tree is as empty as before, and has kept something of the prompt. A server is asked for new "
    "prompts for months: what is noted of a node goes with the node."
)


@task("4.1")
@gives_up
def test_a_long_node_is_found_whole(part: ModuleType) -> None:
    """A match is as long as the prompt and max_blocks allow, however many blocks that are."""
    tree, prompt = part.RadixTree(1), list(range(LONG))
    note(f"# one prompt of {LONG:,} blocks")
    tree.insert(prompt, list(range(LONG)))
    rely(tree.num_blocks == LONG)
    why = "Only max_blocks, the tokens and what is in the tree end a match. No other number does."
    expect_equal(len(tree.peek(prompt, LONG)), LONG, "how many blocks peek finds", why=why)
    got = len(tree.match_prefix(prompt, LONG)[0])
    expect_equal(got, LONG, "how many blocks match_prefix finds", why=why)


@task("4.2")
@gives_up
def test_a_long_prompt_is_filed_whole(part: ModuleType) -> None:
    """All blocks that are given are filed, however many they are, under their tokens."""
    tree, prompt = part.RadixTree(1), list(range(LONG))
    note(f"# one prompt of {LONG:,} blocks, with the tokens 0, 1, 2, ...")
    tree.insert(prompt, range(LONG))
    expect_equal(tree.num_blocks, LONG, "num_blocks", why="A prompt may have any number of blocks.")
    found_again = len(tree.peek(prompt, LONG))
    start_script()
    like = part.RadixTree(1)
    like.insert([7], [0])
    rely(like.peek([7], 1) == [0] and like.peek([8], 1) == [])
    why = (
        f"The first {found_again:,} blocks are found. Token {found_again:,} was filed as another one. "
        "A token is kept as it is."
    )
    expect_equal(found_again, LONG, "how many blocks peek finds of the prompt", why=why)


@task("4.3")
@gives_up
def test_many_splits_in_one_tree(part: ModuleType) -> None:
    """Each of many splits in one tree has an upper half of its own; every prompt is found as before."""
    rows = [[first, first, 5, 5, 6, 6, 7, 7, 8, 8] for first in range(1, 4)]
    inserts = [(row, list(range(10 * i, 10 * i + 5))) for i, row in enumerate(rows)]
    for cuts in ([2], [1, 1], [3, 1], [1, 1, 1, 1]):
        start_script()
        note(f"# each node is cut after {cuts} blocks, one after the other")
        tree, nodes = filed(part, *inserts)
        rely(len(nodes) == 3)
        for cut in cuts:
            for node in nodes:
                upper = tree.split(node, cut)
                for token_ids, blocks in inserts:
                    got = tree.peek(token_ids, 5)
                    why = why_split(tree, upper)
                    what = f"what is found for {token_ids} after this split"
                    expect_equal(got, blocks, what, why=why)
                expect_sound(tree, why_split(tree, upper))
                later_nodes_differ(upper)


@task("4.4")
@gives_up
def test_as_many_locks_as_there_are_requests(part: ModuleType) -> None:
    """A node that many requests have locked is free after the last unlock, and not before."""
    tree, [node] = filed(part, ([1, 2, 3, 4], [10, 11]))
    rely(locks_work(part))
    note(f"# {LOCKS} requests lock the node, and unlock it again")
    held = quietly(tree)
    for _ in range(LOCKS):
        held.lock(node)
    for left in range(LOCKS - 1, -1, -1):
        held.unlock(node)
        expected = 0 if left else 2
        why = f"The node was locked {LOCKS} times and unlocked {LOCKS - left} times. Each lock counts."
        what = f"num_evictable with {left} of {LOCKS} locks left"
        expect_equal(held.num_evictable, expected, what, why=why)


@task("4.4")
@gives_up
def test_locks_on_one_path_are_undone_in_any_order(part: ModuleType) -> None:
    """A lock counts on every node above, whatever is locked there already."""
    inserts = ([1, 1], [10]), ([1, 1, 2, 2], [0, 11]), ([1, 1, 2, 2, 3, 3], [0, 0, 12])
    for locked in ([2, 2], [2, 1], [1, 2, 2], [0, 2, 1]):
        for order in sorted(set(permutations(locked))):
            start_script()
            tree, nodes = filed(part, *inserts)
            held: list[int] = []
            for name, index in [*(("lock", i) for i in locked), *(("unlock", i) for i in order)]:
                getattr(tree, name)(nodes[index])
                held.append(index) if name == "lock" else held.remove(index)
                deepest = max(held, default=-1)
                why = (
                    "A node is protected as long as a lock on it, or on a node below it, is not undone. "
                    "So each lock counts on all nodes of the path, also on those that are locked."
                )
                what = f"num_evictable with locks left: {len(held)}"
                expect_equal(tree.num_evictable, 2 - deepest, what, why=why)
            expect_sound(tree)


@task("4.4")
@gives_up
def test_an_unlock_finds_the_path_as_it_is(part: ModuleType) -> None:
    """A node that was split since it was locked is unlocked with its new upper half."""
    rely(splits_work(part) and locks_work(part))
    for cuts in ([1], [2], [2, 1]):
        start_script()
        tree, [node] = filed(part, ([1, 1, 2, 2, 3, 3], [10, 11, 12]))
        tree.lock(node)
        uppers = [found(tree, [1, 1, 2, 2], [10, 11][:cut]) for cut in cuts]
        counts = {getattr(each, "lock_count", None) for each in (node, *uppers)}
        rely(len(counts) == 1 and tree.num_evictable == 0)
        tree.unlock(node)
        why = (
            "The path from the node to the root has more nodes than when it was locked. Each of them "
            "carries the lock, so unlock walks the path as it is now."
        )
        expect_equal(tree.num_evictable, 3, "num_evictable after unlock", why=why)
        expect_sound(tree)


@task("4.4")
@gives_up
def test_a_node_that_became_a_leaf_is_found(part: ModuleType) -> None:
    """A node whose children have gone while it was locked can go once it is unlocked."""
    rely(locks_work(part))
    for more in (1, 2):
        start_script()
        children = [([1, 1, i, i], [0, 10 + i]) for i in range(2, 2 + more)]
        tree, [node, *_] = filed(part, ([1, 1], [10]), *children)
        tree.lock(node)
        rely(sorted(tree.evict(more)) == [12, 13][:more] and tree.num_evictable == 0)
        tree.unlock(node)
        why = (
            "While it was locked the node has lost its children, so it is a leaf now: unlock pushes it, "
            "whatever it was when it was locked."
        )
        expect_sound(tree, missed=why)


@task("4.5")
@gives_up
def test_many_leaves_go_in_one_call(part: ModuleType) -> None:
    """evict takes as many leaves as it needs, one after the other, however many."""
    tree = part.RadixTree(1)
    note(f"# {LEAVES} prompts of one block are filed, block 0 first")
    for i in range(LEAVES):
        tree.insert([i], [i])
    rely(tree.num_evictable == LEAVES and is_sound(tree))
    most = LEAVES * 3 // 4
    why = "evict goes on until it has what was asked for, or no unlocked leaf is left."
    got = tree.evict(most)
    expect_equal(len(got), most, f"how many blocks of {LEAVES} evict({most}) returns", why=why)
    expect_equal(got == list(range(most)), True, "whether they are the first, in their order")
    expect_equal(len(tree.evict(LEAVES)), LEAVES - most, "how many blocks go after that", why=why)


@task("4.5")
@gives_up
def test_a_long_leaf_goes_whole(part: ModuleType) -> None:
    """evict takes as many blocks of one leaf as are asked for."""
    tree = tree_of(part, block_size=1)
    held = quietly(tree)
    held.insert(list(range(LONG)), list(range(LONG)))
    note(f"# one prompt of {LONG:,} blocks is filed")
    rely(held.num_evictable == LONG and is_sound(held))
    why = "evict takes what was asked for, or all that is unlocked. No other number ends it."
    expect_equal(
        len(held.evict(LONG - 1)), LONG - 1, f"how many blocks evict({LONG - 1}) returns", why=why
    )
    expect_equal(held.evict(2), [0], "what goes after that", why=why)


def expect_no_leak(cycle: Any, what: str) -> None:
    """Of a cycle of prompts that come and go."""
    expect_keeps_nothing(cycle, what, why=CHURN)


@task("4.1")
@gives_up
def test_a_match_notes_nothing_of_what_has_gone(part: ModuleType) -> None:
    """Prompts come, are found and go, and the tree keeps nothing of them."""
    expect_no_leak_of(part, "4.1", expect_no_leak)


@task("4.2")
@gives_up
def test_an_insert_notes_nothing_of_what_has_gone(part: ModuleType) -> None:
    """Prompts are filed and go, and the tree keeps nothing of them."""
    expect_no_leak_of(part, "4.2", expect_no_leak)


@task("4.3")
@gives_up
def test_a_split_notes_nothing_of_what_has_gone(part: ModuleType) -> None:
    """Nodes are split and go, and the tree keeps nothing of them."""
    expect_no_leak_of(part, "4.3", expect_no_leak)


@task("4.4")
@gives_up
def test_a_lock_notes_nothing_of_what_has_gone(part: ModuleType) -> None:
    """Nodes are locked, unlocked and go, and the tree keeps nothing of them."""
    expect_no_leak_of(part, "4.4", expect_no_leak)


@task("4.5")
@gives_up
def test_an_eviction_notes_nothing_of_what_has_gone(part: ModuleType) -> None:
    """Blocks are evicted, and the tree keeps nothing of them."""
    expect_no_leak_of(part, "4.5", expect_no_leak)
