"""Tasks 4.4 and 4.5: what is protected, and what goes first."""

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
    splits_work,
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
    expect_sound(tree, missed=UNLOCKED)


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
@gives_up
def test_any_script_of_locks(part: ModuleType) -> None:
    """After any inserts, matches, locks and unlocks the tree knows what is evictable."""
    rely(splits_work(part))
    run_machine(LockMachine, part, runs=100, steps=16)


@task("4.5")
@gives_up
def test_the_least_recently_used_leaf_goes_first(part: ModuleType) -> None:
    """A match counts as a use, for every node along the path."""
    tree, _ = filed(part, ([1, 1], [10]), ([2, 2], [20]), ([3, 3], [30]))
    found(tree, [1, 1], [10])
    why = (
        "match_prefix marks every node on its way as used now: what was used last is most likely to be "
        "used again."
    )
    expect_equal(tree.evict(1), [20], "the first to go", why=why)
    expect_equal(tree.evict(2), [30, 10], "the next two", why=why)


@task("4.5")
@gives_up
def test_locks_are_no_use(part: ModuleType) -> None:
    """lock and unlock leave the order of last use as it is."""
    tree, [first, _] = filed(part, ([1, 1], [10]), ([2, 2], [20]))
    rely(locks_work(part))
    ticks = []
    for call in (lambda node: None, tree.lock, tree.unlock):
        call(first)
        ticks.append(getattr(first, "last_used", None))
    rely(is_sound(tree))
    why = "One tick for each match or insert; a lock protects, and says nothing of when a node was used."
    for name, before, after in zip(("lock", "unlock"), ticks, ticks[1:], strict=False):
        if before != after:
            why = f"`{name}` has changed the node's last_used from {before} to {after}. {why}"
    expect_equal(tree.evict(1), [10], "the first to go", why=why)


@task("4.5")
@gives_up
def test_a_match_uses_the_whole_path(part: ModuleType) -> None:
    """A match uses the nodes above its end too: without its children a node is as young as their use."""
    tree, [_, _, other] = filed(part, ([1, 1], [10]), ([1, 1, 2, 2], [0, 11]), ([3, 3], [30]))
    rely(locks_work(part))
    found(tree, [1, 1, 2, 2], [10, 11])
    tree.lock(other)
    rely(tree.evict(1) == [11])
    tree.unlock(other)
    rely(is_sound(tree))
    expect_equal(
        tree.evict(2), [30, 10], "what goes next, once block 30 is unlocked",
        why="match_prefix marks every node on its way as used, not the one it ends at alone. Block 10 "
        "was part of a match after block 30 was last used.",
    )  # fmt: skip


@task("4.5")
@gives_up
def test_inserting_again_is_a_use(part: ModuleType) -> None:
    """An insert is a use of the whole path, though everything was there already."""
    tree, _ = filed(part, ([1, 1], [10]), ([2, 2], [20]), ([1, 1], [99]))
    why = "insert begins with a match, and a match is a use."
    expect_equal(tree.evict(1), [20], "the first to go", why=why)


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
    left = (
        "What is left of a leaf has block_size tokens for each of its blocks: both lists are cut."
    )
    expect_equal(tree.peek([1, 1, 2, 2, 3, 3], 3), [10, 11], "what is found afterwards", why=left)
    expect_sound(tree, left)
    filed(part, ([1, 1, 2, 2], [10, 11]), ([1, 1, 2, 2, 3, 3], [0, 0, 13]))
    tree.insert([1, 1, 2, 2, 3, 3], [0, 0, 13])
    expect_equal(tree.peek([1, 1, 2, 2, 3, 3], 3), [10, 11, 13], "what is found once refilled")


@task("4.5")
@gives_up
def test_blocks_go_one_by_one(part: ModuleType) -> None:
    """evict returns blocks in the order in which they go, from several leaves if need be."""
    tree, _ = filed(part, ([1, 1, 2, 2], [10, 11]), ([3, 3, 4, 4, 5, 5], [20, 21, 22]))
    why = (
        "Block 11 goes, then 10, and of the next leaf only what is still wanted: 22. Each leaf is taken "
        "from its end, and the list is in that order."
    )
    expect_equal(tree.evict(3), [11, 10, 22], "three blocks of two leaves", why=why)
    tree.insert([7, 7], [70])
    expect_equal(
        tree.evict(2), [21, 20], "the next two",
        why="What is left of a leaf keeps the last use that it had: being cut is no use.",
    )  # fmt: skip


@task("4.5")
@gives_up
def test_a_parent_goes_after_its_children(part: ModuleType) -> None:
    """A node becomes a leaf when its last child is gone, and takes its turn by its own last use."""
    tree, _ = filed(part, ([1, 1, 2, 2], [10, 11]), ([1, 1, 3, 3], [0, 12]), ([4, 4], [40]))
    why = (
        "Block 10 was last used when block 12 was inserted, before block 40. Without children it is a "
        "leaf, and must be pushed onto the queue of leaves."
    )
    expect_equal(tree.evict(3), [11, 12, 10], "what goes first", why=why)
    expect_equal(tree.evict(9), [40], "what goes last")
    expect_equal((tree.num_blocks, tree.num_evictable), (0, 0), "blocks and evictable blocks")


@task("4.5")
@gives_up
def test_a_parent_may_be_younger_than_its_child(part: ModuleType) -> None:
    """A parent that was used after its child stays until its own turn comes."""
    tree, _ = filed(part, ([1, 1], [10]), ([1, 1, 2, 2], [0, 11]), ([3, 3], [30]))
    found(tree, [1, 1], [10])
    why = "Block 10 was matched after block 30 was filed; its child's last use is not its own."
    expect_equal(tree.evict(3), [11, 30, 10], "the order in which all go", why=why)


@task("4.5")
@gives_up
def test_locked_nodes_stay(part: ModuleType) -> None:
    """Eviction takes less than was asked for rather than anything locked."""
    tree, _ = filed(part, ([1, 1, 2, 2], [10, 11]), ([3, 3], [30]))
    rely(locks_work(part))
    node = found(tree, [1, 1], [10])
    tree.lock(node)
    rely(tree.num_evictable == 2 and is_sound(tree))
    why = "A block that a running request reads must not be handed to another."
    expect_equal(sorted(tree.evict(3)), [11, 30], "what goes while 10 is locked, sorted", why=why)
    tree.unlock(node)
    rely(is_sound(tree))
    expect_equal(tree.evict(3), [10], "what goes once it is unlocked", why=UNLOCKED)


@task("4.5")
@gives_up
def test_a_removed_leaf_goes_once(part: ModuleType) -> None:
    """A leaf that was removed is not evictable any more, though the queue may hold it a second time."""
    tree, [node] = filed(part, ([1, 1], [10]))
    rely(locks_work(part))
    tree.lock(node)
    tree.unlock(node)
    rely(is_sound(tree))
    why = (
        "insert and unlock each push the leaf, so the queue holds it twice with one tick. `pop` returns "
        "whatever is evictable: a node that is off the tree must not be."
    )
    expect_equal(tree.evict(2), [10], "what goes when more is wanted than there is", why=why)
    expect_equal((tree.num_blocks, tree.num_evictable), (0, 0), "blocks and evictable blocks")


@task("4.5")
@gives_up
def test_any_script_of_evictions(part: ModuleType) -> None:
    """Whatever happens, only unlocked blocks go, the least recently used first, prefixes stay whole."""
    rely(splits_work(part))
    run_machine(EvictMachine, part, runs=110, steps=20)
