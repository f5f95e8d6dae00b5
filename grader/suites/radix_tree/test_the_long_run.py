"""Beyond one call and a small tree: results that stay, nothing left behind, long paths, long nodes."""

from types import ModuleType
from typing import Any

from grader.kit import expect, expect_equal, note, quietly, start_script, task
from grader.kit.memory import expect_keeps_nothing, peak_of
from grader.kit.standing import expect_results_stand
from grader.suites.radix_tree.trees import gives_up, rely, splits_work, tree_of

DEEP = 1200
"""Nodes on a path: more than Python calls deep, and than anybody would write by hand."""
LONG = 100_000
"""Blocks of one node."""
MOST = 64 << 10
"""Bytes for a question about one block, whatever node it is in."""
A_PART = (
    "A question about one block of a long node takes that block's tokens out of the node's list. "
    "A copy of the whole list first costs as much as the node is long, at every question."
)


def deep(part: ModuleType) -> tuple[Any, list[int]]:
    """A tree whose one path has DEEP nodes of one block; and the tokens. It is filed at once, and cut by
    matches that end in it."""
    rely(splits_work(part))
    note(f"# one prompt of {DEEP} blocks, cut by a match at each of them: a node for each block")
    tree, prompt = part.RadixTree(2), list(range(2 * DEEP))
    tree.insert(prompt, range(DEEP))
    rely(tree.num_blocks == DEEP)
    for end in range(1, DEEP):
        tree.match_prefix(prompt, end)
    return tree, prompt


def long(part: ModuleType, size: int = 2) -> tuple[Any, list[int]]:
    """A tree of one node with LONG blocks; and its tokens."""
    note(f"# one prompt of {LONG} blocks of {size} tokens")
    tree, prompt = part.RadixTree(size), list(range(size * LONG))
    tree.insert(prompt, range(LONG))
    return tree, prompt


@task("4.1")
@gives_up
def test_what_was_found_stays(part: ModuleType) -> None:
    """The blocks of one match are no list that the next one fills."""
    filed = [([first, first, 7, 7], [2 * first, 2 * first + 1]) for first in range(3)]
    for name in ("peek", "match_prefix"):
        start_script()
        tree = tree_of(part, *filed)
        calls = [
            lambda name=name, first=first, tree=tree: getattr(tree, name)([first, first, 7, 7], 2)
            for first in range(3)
        ]
        only = (lambda result: result) if name == "peek" else (lambda result: result[0])
        expect_results_stand(calls, name, only)
        start_script()
        method = getattr(quietly(tree), name)
        expect_keeps_nothing(lambda method=method: method([1, 1, 7, 7], 2), name)  # type: ignore[misc]


@task("4.1")
def test_an_empty_prompt_finds_nothing(part: ModuleType) -> None:
    """Of no token there is no prefix: no block, and the root."""
    tree = part.RadixTree(2)
    tree.insert([1, 2], [5])
    expect_equal(tree.peek([], 4), [], "what peek finds of no token")
    blocks, node = tree.match_prefix([], 4)
    expect_equal(blocks, [], "what match_prefix finds of no token")
    expect_equal(quietly(tree).path_blocks(node), [], "the path of the node that it ends at")


@task("4.1")
@gives_up
def test_a_match_follows_a_long_path(part: ModuleType) -> None:
    """A match follows its path to the end, however many nodes that has."""
    tree, prompt = deep(part)
    found = tree.peek(prompt, DEEP)
    expect_equal(len(found), DEEP, "how many blocks peek finds", why=why_short(found))
    blocks, node = tree.match_prefix(prompt, DEEP)
    expect_equal(len(blocks), DEEP, "how many blocks match_prefix finds", why=why_short(blocks))
    expect_equal(len(tree.path_blocks(node)), DEEP, "how many blocks its node stands for")


def why_short(blocks: list[int]) -> str:
    """Of a match along the path of `deep` that finds too few."""
    count = len(blocks)
    if blocks != list(range(count)):
        return ""
    return (
        f"The first {count} blocks are the right ones, each in a node of its own, and then the match "
        "ends. A prompt may have any number of blocks: only max_blocks and the tokens end a match."
    )


@task("4.1")
@gives_up
def test_a_question_about_a_block_copies_no_node(part: ModuleType) -> None:
    """What peek takes meanwhile hangs on the blocks that it is asked for, not on the node's length."""
    tree, prompt = long(part)
    rely(tree.num_blocks == LONG)
    few = prompt[:8]
    peak = peak_of(lambda: tree.peek(few, 2))
    problem = f"peek takes {peak:,} bytes for 2 blocks of a node of {LONG:,}"
    expect(peak <= MOST, problem, why=A_PART)
    start_script()
    apart = [*prompt[:6], 0, 0]
    peak = peak_of(lambda: tree.peek(apart, 4))
    problem = f"peek takes {peak:,} bytes for a prompt that parts in block 4 of a node of {LONG:,}"
    expect(peak <= MOST, problem, why=A_PART)


@task("4.2")
@gives_up
def test_what_is_there_is_known_by_its_number(part: ModuleType) -> None:
    """Of a long prompt that is there already nothing is filed again."""
    tree, prompt = part.RadixTree(1), list(range(600))
    note("tree = RadixTree(1); tree.insert(range(600), blocks 0 to 599), twice")
    tree.insert(prompt, range(600))
    rely(len(tree.peek(prompt, 600)) == 600)
    existing, node = tree.insert(prompt, range(600))
    expect_equal(existing, 600, "how many blocks were there already")
    expect_equal(tree.num_blocks, 600, "num_blocks after the second time")
    expect_equal(len(quietly(tree).path_blocks(node)), 600, "how many blocks the node stands for")
    expect_keeps_nothing(lambda: tree.insert(prompt, range(600)), "insert of what is there")


@task("4.2")
@gives_up
def test_an_insert_of_nothing_files_nothing(part: ModuleType) -> None:
    """No block of no token: nothing was there, and the node is the root."""
    tree = part.RadixTree(2)
    existing, node = tree.insert([], [])
    expect_equal(existing, 0, "how many blocks were there already")
    expect_equal(quietly(tree).path_blocks(node), [], "the path of the node")
    expect_equal(tree.num_blocks, 0, "num_blocks")


@task("4.2")
@gives_up
def test_an_insert_copies_no_more_than_it_files(part: ModuleType) -> None:
    """Of a long prompt whose first block alone is filed, the rest is not copied."""
    tree, prompt = part.RadixTree(2), list(range(2 * LONG))
    rely(peak_of(lambda: tree.match_prefix(prompt, 1)) <= MOST)
    note(f"# the first block of a prompt of {2 * LONG} tokens is filed")
    peak = peak_of(lambda: tree.insert(prompt, [0]))
    problem = f"insert takes {peak:,} bytes to file one block of a prompt of {2 * LONG:,} tokens"
    expect(peak <= MOST, problem, why=A_PART)


@task("4.3")
@gives_up
def test_splits_leave_nothing_behind(part: ModuleType) -> None:
    """Each split returns a node of its own, and keeps nothing of the old one."""
    tree, prompt = part.RadixTree(1), list(range(400))
    _, node = tree.insert(prompt, range(400))
    rely(len(tree.peek(prompt, 400)) == 400)
    uppers = [tree.split(node, 1) for _ in range(3)]
    paths = [quietly(tree).path_blocks(upper) for upper in uppers]
    expect_equal(paths, [[0], [0, 1], [0, 1, 2]], "the paths of three upper nodes, one by one")

    def call() -> None:
        tree = part.RadixTree(1)
        _, node = tree.insert([1, 2], [0, 1])
        tree.split(node, 1)

    expect_keeps_nothing(call, "a tree that is split and dropped")


@task("4.4")
@gives_up
def test_locks_hold_along_a_long_path(part: ModuleType) -> None:
    """A lock protects every node of its path, however many, and is undone on all."""
    tree, prompt = deep(part)
    rely(tree.num_blocks == tree.num_evictable == DEEP)
    _, node = tree.match_prefix(prompt, DEEP)
    rely(len(quietly(tree).path_blocks(node)) == DEEP)
    tree.lock(node)
    why = "A lock goes from the node up to the root, past any number of nodes; unlock goes the same way."
    what = f"num_evictable with a path of {DEEP} nodes locked"
    expect_equal(tree.num_evictable, 0, what, why=why)
    tree.unlock(node)
    expect_equal(tree.num_evictable, DEEP, "num_evictable after unlock", why=why)


@task("4.4")
@gives_up
def test_locks_leave_nothing_behind(part: ModuleType) -> None:
    """Lock and unlock, again and again, leave the tree as it was."""
    tree = part.RadixTree(2)
    _, node = tree.insert([1, 2, 3, 4], [0, 1])
    tree.insert([1, 2, 3, 4, 5, 6], [0, 1, 2])  # so that the node is no leaf

    def call() -> None:
        tree.lock(node)
        tree.unlock(node)

    expect_keeps_nothing(call, "lock and unlock of a node")


@task("4.5")
@gives_up
def test_what_was_evicted_stays(part: ModuleType) -> None:
    """The list of one eviction is no list that the next one fills; and none keeps anything."""
    tree = tree_of(part, *(([token], [token]) for token in range(8)), block_size=1)
    rely(tree.num_evictable == 8)
    expect_results_stand([lambda: tree.evict(2)] * 3, "evict")
    start_script()
    evict = quietly(tree).evict
    expect_keeps_nothing(lambda: evict(0), "evict(0)")


@task("4.5")
@gives_up
def test_an_eviction_of_a_block_copies_no_node(part: ModuleType) -> None:
    """What an eviction takes meanwhile hangs on the blocks that go."""
    tree, blocks = part.RadixTree(2), list(range(LONG))
    note(f"# one prompt of {LONG} blocks of 2 tokens")
    tree.insert(list(range(2 * LONG)), blocks)
    rely(tree.num_evictable == LONG)
    peak = peak_of(lambda: tree.evict(1))
    problem = f"evict(1) takes {peak:,} bytes, of a node of {LONG:,} blocks"
    expect(peak <= MOST, problem, why=A_PART)
