"""Tasks 4.4 and 4.5: what is protected, and who goes first."""

from types import ModuleType

from grader.kit import expect_equal, run_machine, task
from grader.suites.radix_tree.tree_machine import EvictMachine, LockMachine
from grader.suites.radix_tree.trees import (
    expect_sound,
    filed,
    found,
    gives_up,
    is_sound,
    locks_work,
    rely,
)

UNLOCKED = (
    "unlock must not lose the node that it was given while it walks up to the root: this node is the "
    "leaf that can be evicted now."
)


@task("4.4")
@gives_up
def test_locks_count(part: ModuleType) -> None:
    """A node locked twice is free after two unlocks, not after one."""
    tree, [node] = filed(part, ([1, 2], [10]))
    tree.lock(node)
    expect_equal(
        tree.num_evictable, 0, "num_evictable with its only node locked",
        why="lock protects the node that it is given itself, as well as those above it.",
    )  # fmt: skip
    tree.lock(node)
    tree.unlock(node)
    why = "Two requests use the prefix; one of them has ended."
    expect_equal(tree.num_evictable, 0, "num_evictable after one of two unlocks", why=why)
    tree.unlock(node)
    expect_equal(tree.num_evictable, 1, "num_evictable after both", why=why)


@task("4.4")
@gives_up
def test_a_lock_protects_the_path_from_the_root(part: ModuleType) -> None:
    """Locking a node locks every node above it, and nothing beside it."""
    tree, [_, beside] = filed(part, ([1, 1, 2, 2], [10, 11]), ([1, 1, 3, 3], [0, 12]))
    node = found(tree, [1, 1, 2, 2], [10, 11])
    why = "A request reads the blocks of its whole prefix, so all of them must stay."
    tree.lock(node)
    expect_equal(tree.num_evictable, 1, "num_evictable with one of two branches locked", why=why)
    tree.lock(beside)
    expect_equal(tree.num_evictable, 0, "num_evictable with both branches locked", why=why)
    tree.unlock(node)
    expect_equal(
        tree.num_evictable, 1, "num_evictable after the first is unlocked",
        why="The shared node is still locked through the other branch.",
    )  # fmt: skip


@task("4.4")
@gives_up
def test_what_is_unlocked_can_go_again(part: ModuleType) -> None:
    """A leaf whose last lock is undone is among those that eviction finds."""
    tree, _ = filed(part, ([1, 2, 3, 4], [10, 11]))
    node = found(tree, [1, 2, 3, 4], [10, 11])
    tree.lock(node)
    found(tree, [1, 2, 3, 4], [10, 11])
    tree.unlock(node)
    expect_sound(tree, UNLOCKED)


@task("4.4")
@gives_up
def test_the_root_can_be_locked(part: ModuleType) -> None:
    """A request that matched nothing locks the root: harmless, and undone like any lock."""
    tree, _ = filed(part, ([1, 2], [10]))
    _, root = tree.match_prefix([9, 9], 1)
    tree.lock(root)
    expect_equal(tree.num_evictable, 1, "num_evictable with the root locked")
    tree.unlock(root)
    expect_equal(tree.num_evictable, 1, "num_evictable after unlock")


@task("4.4")
def test_any_script_of_locks(part: ModuleType) -> None:
    """After any inserts, matches, locks and unlocks the tree knows what is evictable."""
    run_machine(LockMachine, part, runs=100, steps=16)


@task("4.5")
@gives_up
def test_the_least_recently_used_leaf_goes_first(part: ModuleType) -> None:
    """A match counts as a use, for every node along the path."""
    tree, _ = filed(part, ([1, 1], [10]), ([2, 2], [20]), ([3, 3], [30]))
    found(tree, [1, 1], [10])
    why = "What was used last is most likely to be used again."
    expect_equal(tree.evict(1), [20], "the first to go", why=why)
    expect_equal(tree.evict(2), [30, 10], "the next two", why=why)


@task("4.5")
@gives_up
def test_peek_is_no_use(part: ModuleType) -> None:
    """peek does not count as a use: what was only looked at goes as if it had not been."""
    tree, _ = filed(part, ([1, 1], [10]), ([2, 2], [20]))
    tree.peek([1, 1], 1)
    expect_equal(
        tree.evict(1), [10], "the block that goes first",
        why="peek only looks: a queue of waiting requests peeks at every step, and that must not "
        "keep their prefixes in the cache.",
    )  # fmt: skip


@task("4.5")
@gives_up
def test_a_leaf_is_eaten_from_its_end(part: ModuleType) -> None:
    """Eviction takes as many blocks as were asked for, from the end of a leaf."""
    tree, _ = filed(part, ([1, 1, 2, 2, 3, 3], [10, 11, 12]))
    why = "What is left must be a prefix, and throwing away more than was asked for costs others."
    expect_equal(tree.evict(1), [12], "what goes when one block is asked for", why=why)
    expect_equal(tree.peek([1, 1, 2, 2, 3, 3], 3), [10, 11], "what is found afterwards", why=why)
    filed(part, ([1, 1, 2, 2], [10, 11]), ([1, 1, 2, 2, 3, 3], [0, 0, 13]))
    tree.insert([1, 1, 2, 2, 3, 3], [0, 0, 13])
    expect_equal(tree.peek([1, 1, 2, 2, 3, 3], 3), [10, 11, 13], "what is found once refilled")


@task("4.5")
@gives_up
def test_a_parent_goes_after_its_children(part: ModuleType) -> None:
    """A node becomes a leaf when its last child is gone, and takes its turn by its own last use."""
    tree, _ = filed(part, ([1, 1, 2, 2], [10, 11]), ([1, 1, 3, 3], [0, 12]), ([4, 4], [40]))
    expect_equal(tree.evict(3), [11, 12, 10], "what goes first")
    expect_equal(tree.evict(9), [40], "what goes last")
    expect_equal((tree.num_blocks, tree.num_evictable), (0, 0), "blocks and evictable blocks")


@task("4.5")
@gives_up
def test_locked_nodes_stay(part: ModuleType) -> None:
    """Eviction takes less than was asked for rather than anything locked."""
    tree, _ = filed(part, ([1, 1, 2, 2], [10, 11]), ([3, 3], [30]))
    rely(locks_work(part))
    node = found(tree, [1, 1], [10])
    tree.lock(node)
    rely(tree.num_evictable == 2)
    why = "A block that a running request reads must not be handed to another."
    expect_equal(sorted(tree.evict(3)), [11, 30], "what goes while block 10 is locked", why=why)
    tree.unlock(node)
    rely(is_sound(tree))
    expect_equal(tree.evict(3), [10], "what goes once it is unlocked", why=UNLOCKED)


@task("4.5")
def test_any_script_of_evictions(part: ModuleType) -> None:
    """Whatever happens, only unlocked blocks go, the least recently used first, prefixes stay whole."""
    run_machine(EvictMachine, part, runs=110, steps=20)
