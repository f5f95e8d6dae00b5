"""Task 4.3: a node is cut in two."""

from types import ModuleType

from grader.kit import expect_equal, start_script, task
from grader.suites.radix_tree.shape import fault_in
from grader.suites.radix_tree.trees import (
    expect_sound,
    filed,
    gives_up,
    later_nodes_differ,
    locks_work,
    rely,
    relying_on_all,
    why_split,
)


@task("4.3")
@gives_up
def test_split_keeps_the_path(part: ModuleType) -> None:
    """split returns the upper half; the node itself becomes the lower half, on the same path."""
    tree, [node] = filed(part, ([1, 2, 3, 4, 5, 6], [10, 11, 12]))
    upper = tree.split(node, 1)
    why = why_split(tree, upper)
    expect_equal(tree.path_blocks(upper), [10], "the path to the upper half", why=why)
    expect_equal(
        tree.path_blocks(node), [10, 11, 12], "the path to the node that was split",
        why=why or "A handle to the node still means the end of the longer match.",
    )  # fmt: skip
    expect_equal(
        tree.peek([1, 2, 3, 4, 5, 6], 3), [10, 11, 12], "what is found afterwards", why=why
    )
    expect_equal((tree.num_blocks, tree.num_evictable), (3, 3), "blocks and evictable blocks")
    later_nodes_differ(upper)
    expect_sound(
        tree, "A split changes references and nothing else: see what the node was before it."
    )


@task("4.3")
@gives_up
def test_both_halves_can_have_children(part: ModuleType) -> None:
    """After a split both halves can have children of their own."""
    filed(part, ([1, 1], [20]), ([1, 1, 5, 5], [0, 24]))  # not split's part
    tree, [node] = filed(part, ([1, 1, 2, 2, 3, 3], [10, 11, 12]))
    upper = tree.split(node, 2)
    why = why_split(tree, upper)
    later_nodes_differ(upper)
    expect_equal(tree.path_blocks(node), [10, 11, 12], "the path to the lower half", why=why)
    tree.insert([1, 1, 2, 2, 4, 4], [0, 0, 13])
    tree.insert([1, 1, 2, 2, 3, 3, 6, 6], [0, 0, 0, 14])
    for token_ids, blocks in (
        ([1, 1, 2, 2, 3, 3], [10, 11, 12]),
        ([1, 1, 2, 2, 4, 4], [10, 11, 13]),
        ([1, 1, 2, 2, 3, 3, 6, 6], [10, 11, 12, 14]),
    ):
        found = tree.peek(token_ids, 4)
        why = why or fault_in(tree)
        expect_equal(found, blocks, f"what is found for {token_ids}", why=why)
    expect_sound(tree)


@task("4.3")
@gives_up
def test_children_stay_below_the_lower_half(part: ModuleType) -> None:
    """What hangs below a node that is split hangs below its lower half."""
    tree, [node, _] = filed(part, ([1, 1, 2, 2], [10, 11]), ([1, 1, 2, 2, 3, 3], [0, 0, 12]))
    upper = tree.split(node, 1)
    why = why_split(tree, upper) or (
        "The children's tokens follow on the end of the node, and that is the end of its lower half. "
        "The upper half has one child: the lower half."
    )
    expect_equal(tree.peek([1, 1, 2, 2, 3, 3], 3), [10, 11, 12], "what is found", why=why)
    expect_equal(tree.peek([1, 1, 3, 3], 2), [10], "what is found without the lower half", why=why)
    expect_equal(tree.path_blocks(upper), [10], "the path to the upper half")
    expect_equal(sorted(tree.all_blocks()), [10, 11, 12], "the tree's blocks", why=why)
    expect_sound(tree, why)


@task("4.3")
@gives_up
def test_a_split_is_no_use(part: ModuleType) -> None:
    """Both halves keep the last use of the node that was split."""
    with relying_on_all():  # the same nodes, filed as they are
        like, _ = filed(part, ([1, 1], [10]), ([1, 1, 2, 2], [0, 11]), ([3, 3], [30]))
        like.match_prefix([9, 9], 1)
        rely(like.evict(3) == [11, 10, 30])
    start_script()
    tree, [node, _] = filed(part, ([1, 1, 2, 2], [10, 11]), ([3, 3], [30]))
    tree.match_prefix([9, 9], 1)
    tree.split(node, 1)
    why = "Blocks 10 and 11 were used before 30. Cutting a node in two uses neither half."
    expect_equal(tree.evict(3), [11, 10, 30], "the order in which all blocks go", why=why)


@task("4.3")
@gives_up
def test_the_upper_half_is_as_old_as_the_node(part: ModuleType) -> None:
    """The upper half begins with the last use of the node, so it is not older than it was."""
    rely(locks_work(part))
    with relying_on_all():  # the same nodes, filed as they are
        inserts = ([3, 3], [30]), ([1, 1], [10]), ([1, 1, 2, 2], [0, 11])
        like, [old, _, _] = filed(part, *inserts)
        like.lock(old)
        rely(like.evict(1) == [11])
        like.unlock(old)
        rely(like.evict(2) == [30, 10])
    start_script()
    tree, [old, node] = filed(part, ([3, 3], [30]), ([1, 1, 2, 2], [10, 11]))
    tree.split(node, 1)
    tree.lock(old)
    rely(tree.evict(1) == [11])
    tree.unlock(old)
    why = "Block 10 was used after block 30, and a split does not change that."
    expect_equal(tree.evict(2), [30, 10], "the order in which the others go", why=why)


@task("4.3")
@gives_up
def test_a_split_under_a_lock_protects_both_halves(part: ModuleType) -> None:
    """Locks on a node that is split go on protecting the whole path, and are undone one by one."""
    tree, [node] = filed(part, ([1, 2, 3, 4], [10, 11]))
    rely(locks_work(part))
    tree.lock(node)
    tree.lock(node)
    upper = tree.split(node, 1)
    why = (
        "Every lock on the lower half is a lock on the upper half too: it starts with that count, and "
        "the lower half keeps its own."
    )
    expect_equal(tree.num_evictable, 0, "num_evictable while the node is locked", why=why)
    expect_sound(tree, why)
    tree.unlock(node)
    expect_equal(tree.num_evictable, 0, "num_evictable after one of two unlocks", why=why)
    tree.unlock(node)
    expect_equal(tree.num_evictable, 2, "num_evictable after both", why=why)
    tree.lock(upper)
    expect_equal(
        tree.num_evictable, 1, "num_evictable with only the upper half locked",
        why="What is locked from here on is either half by itself.",
    )  # fmt: skip


@task("4.3")
@gives_up
def test_a_branch_under_a_lock(part: ModuleType) -> None:
    """A prompt that parts from a locked one in the middle of its node adds no lock and takes none."""
    tree, [node] = filed(part, ([1, 2, 3, 4], [10, 11]))
    rely(locks_work(part))
    tree.lock(node)
    rely(tree.insert([1, 2, 5, 6], [0, 12])[0] == 1)
    why = "The new branch is not locked; the block above both is locked through the other."
    expect_equal(tree.num_evictable, 1, "num_evictable with one of two branches locked", why=why)
