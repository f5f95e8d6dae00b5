"""What counts as a use: which nodes a call marks, and with what."""

from types import ModuleType
from typing import Any

from grader.kit import expect_equal, note, quietly, start_script, task
from grader.suites.radix_tree.ages import (
    BELOW,
    TWO,
    USES,
    Ages,
    ages_of,
    changed,
    marks_work,
    told,
)
from grader.suites.radix_tree.trees import (
    filed,
    found,
    gives_up,
    later_nodes_differ,
    locks_work,
    rely,
    splits_work,
    why_split,
)

MANY = 66_000
"""Matches: more than 16 bits count, as a server makes in minutes."""


def splits_keep_ages(part: ModuleType) -> bool:
    """Whether both halves of a split have the last use of the node."""
    tree, [node, _] = filed(part, *TWO)
    found(tree, [3, 3], [30])
    before = ages_of(tree)
    later_nodes_differ(tree.split(node, 1))
    return not changed(before, ages_of(tree))


def why_marked(tree: Any, got: list[int], blocks: list[int], was: list[list[int]]) -> str:
    """Of a match that marks other blocks than it finds. was: the blocks of each node before it."""
    if not got:
        return (
            "The match has marked no node. It sets `last_used` of each node on its way to its tick."
        )
    if beyond := sorted(set(got) - set(blocks)):
        cut = [block for node in was for block in node if set(node) & set(blocks)]
        if set(beyond) <= set(cut):
            return (
                f"The match ends inside of a node, and the lower half, with {beyond}, is marked too. "
                "Cut the node first, then mark the upper half."
            )
        return f"{beyond} are not part of what was found, so this match did not use them."
    if blocks[-len(got) :] == got:
        return (
            f"The nodes nearest to the end are marked, and those above are not. A match uses every node "
            f"on its way: {blocks}."
        )
    return f"A match uses every node on its way: those of {blocks}."


@task("4.1")
@gives_up
def test_a_match_marks_the_nodes_on_its_way(part: ModuleType) -> None:
    """A match marks every node of what it finds, and no other, as used after all others."""
    rely(splits_work(part) and splits_keep_ages(part))
    for happens, inserts, token_ids, limit, blocks in USES:
        start_script()
        note(f"# {happens}")
        tree, _ = filed(part, *inserts)
        _expect_marks(tree, token_ids, limit, blocks)


@task("4.1")
@gives_up
def test_locked_nodes_are_marked_too(part: ModuleType) -> None:
    """A match marks nodes that are locked: when they are unlocked, their last use counts."""
    rely(locks_work(part) and splits_work(part) and splits_keep_ages(part))
    for _, inserts, token_ids, limit, blocks in USES:
        start_script()
        tree, nodes = filed(part, *inserts)
        before = ages_of(tree)
        for node in nodes:
            tree.lock(node)
        rely(ages_of(tree) == before)
        _expect_marks(tree, token_ids, limit, blocks)


def _expect_marks(tree: Any, token_ids: list[int], limit: int, blocks: list[int]) -> None:
    before, was = ages_of(tree), _nodes_of(tree)
    rely(tree.match_prefix(token_ids, limit)[0] == blocks)
    after = ages_of(tree)
    got = changed(before, after)
    why = why_marked(tree, got, blocks, was)
    expect_equal(got, blocks, "the blocks whose last use this match has changed", why=why)
    _expect_youngest(blocks, before, after)


def _nodes_of(tree: Any) -> list[list[int]]:
    """The blocks of each node."""
    stack, nodes = [*quietly(tree)._root.children.values()], []
    while stack:
        node = stack.pop()
        nodes.append([*node.blocks])
        stack += node.children.values()
    return nodes


def _expect_youngest(blocks: list[int], before: Ages, after: Ages) -> None:
    """These were used after all that was used before."""
    latest = max(before.values(), default=0)
    older = [block for block in blocks if after[block] <= latest]
    why = (
        f"{told(older[:1], after)}, but an earlier call has marked others with {latest}. Each match "
        "takes a tick of its own, after all earlier ones."
        if older
        else ""
    )
    expect_equal(older, [], "the blocks used last that are not marked as the last", why=why)


@task("4.1")
@gives_up
def test_peek_marks_nothing(part: ModuleType) -> None:
    """peek leaves the last use of every node as it is, whatever it finds."""
    for happens, inserts, token_ids, limit, blocks in USES:
        start_script()
        note(f"# {happens}")
        tree, _ = filed(part, *inserts)
        tree.match_prefix([9, 9], 1)  # time goes by
        before = ages_of(tree)
        rely(tree.peek(token_ids, limit) == blocks)
        why = "peek only looks. A queue of waiting requests peeks at every step: that is no use."
        got = changed(before, ages_of(tree))
        expect_equal(got, [], "the blocks whose last use peek has changed", why=why)


@task("4.1")
@gives_up
def test_the_clock_does_not_start_again(part: ModuleType) -> None:
    """However many matches there were, the last one is the last."""
    tree = part.RadixTree(1)
    nodes = [tree.insert([i], [10 * i])[1] for i in (1, 2)]
    rely(all(hasattr(node, "last_used") for node in nodes))
    note(f"# blocks 10 and 20 are filed, then matched in turn, {MANY:,} times")
    for number in range(MANY):
        i = number % 2
        tree.match_prefix([i + 1], 1)
        if nodes[i].last_used <= nodes[1 - i].last_used:
            rely(number >= len(USES))  # or another test tells
            ages, block = ages_of(tree), 10 * i + 10
            why = (
                f"After {number + 1} matches the last use of block {block}, which was matched last, is "
                f"{ages[block]}, and that of the other is {ages[30 - block]}. The clock must not begin "
                "again at any number."
            )
            expect_equal(30 - block, block, "the block that is marked as used last", why=why)


@task("4.2")
@gives_up
def test_an_insert_uses_its_path(part: ModuleType) -> None:
    """An insert uses what was there of its prompt, and what it files."""
    rely(splits_work(part) and splits_keep_ages(part) and marks_work(part))
    cases = (
        ("nothing was there", [8, 8], [80], [80]),
        ("all was there", [1, 1, 4, 4], [90, 91], [10, 13]),
        ("one node was there", [1, 1, 8, 8], [90, 81], [10, 81]),
        ("a part of a node was there", [1, 1, 2, 2, 8, 8], [90, 91, 82], [10, 11, 82]),
    )
    for happens, token_ids, block_ids, blocks in cases:
        start_script()
        note(f"# {happens}")
        tree, _ = filed(part, *BELOW)
        before = ages_of(tree)
        tree.insert(token_ids, block_ids)
        after = ages_of(tree)
        rely(set(blocks) <= set(after))
        got = changed(before, after)
        why = "insert begins with a match, which uses the path; the leaf that it files is used as well."
        expect_equal(got, blocks, "the blocks whose last use this insert has set", why=why)
        _expect_youngest(blocks, before, after)


@task("4.3")
@gives_up
def test_a_split_changes_no_last_use(part: ModuleType) -> None:
    """Each block was used last when it was before the split."""
    for happens, inserts, index, used in (
        ("no other node was used since", TWO, 0, ([3, 3], [30])),
        ("the node above was used since", BELOW, 1, ([1, 1], [10])),
        ("another child was used since", BELOW, 1, ([1, 1, 4, 4], [10, 13])),
    ):
        start_script()
        note(f"# {happens}")
        tree, nodes = filed(part, *inserts)
        found(tree, *used)
        before = ages_of(tree)
        upper = tree.split(nodes[index], 1)
        after = ages_of(tree)
        later = changed(before, after)
        now = told([block for block in later if block in before], after)
        why = why_split(tree, upper, f"Now {now}. Both halves keep the last use of the node.")
        later_nodes_differ(upper)
        expect_equal(later, [], "the blocks whose last use the split has changed", why=why)


@task("4.4")
@gives_up
def test_locks_mark_nothing(part: ModuleType) -> None:
    """lock and unlock leave the last use of every node as it is."""
    for index in range(len(BELOW)):
        start_script()
        tree, nodes = filed(part, *BELOW)
        found(tree, [3, 3], [30])
        before = ages_of(tree)
        for name in ("lock", "unlock"):
            getattr(tree, name)(nodes[index])
            later = changed(before, ages_of(tree))
            why = (
                "A lock protects, and says nothing of when a node was used. Only a match is a use."
            )
            expect_equal(later, [], f"the blocks whose last use {name} has changed", why=why)


@task("4.5")
@gives_up
def test_what_is_left_keeps_its_last_use(part: ModuleType) -> None:
    """An eviction leaves the last use of what stays as it is."""
    for count in range(1, 5):
        start_script()
        tree, _ = filed(part, *BELOW)
        before = ages_of(tree)
        tree.evict(count)
        after = ages_of(tree)
        later = changed(before, after)
        why = f"Now {told(later, after)}. Losing blocks, or a child, is no use, and makes no node older."
        expect_equal(later, [], f"the blocks whose last use evict({count}) has changed", why=why)
