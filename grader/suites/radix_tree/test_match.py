"""Tasks 4.1 to 4.3: what is found, filed and cut."""

from types import ModuleType

from grader.kit import count_calls, expect, expect_equal, note, run_machine, task
from grader.suites.radix_tree.tree_machine import InsertMachine, MatchMachine
from grader.suites.radix_tree.trees import (
    expect_sound,
    filed,
    gives_up,
    is_sound,
    locks_work,
    rely,
    tree_of,
)


@task("4.1")
def test_an_empty_tree_matches_nothing(part: ModuleType) -> None:
    """In an empty tree nothing matches: no blocks, and the root."""
    tree = tree_of(part)
    expect_equal(tree.peek([1, 2, 3, 4], 2), [], "what peek found")
    blocks, node = tree.match_prefix([1, 2, 3, 4], 2)
    expect_equal(blocks, [], "what match_prefix found")
    expect_equal(tree.path_blocks(node), [], "the path to the node it returned")


@task("4.1")
def test_only_whole_blocks_match(part: ModuleType) -> None:
    """A block matches when all of its tokens do; half a block is none."""
    tree = tree_of(part, ([1, 2, 3, 4], [10, 11]))
    why = "K and V of a block are those of all its tokens: a part of a block cannot be reused."
    expect_equal(tree.peek([1, 2, 3], 5), [10], "peek with one and a half blocks", why=why)
    expect_equal(tree.peek([1, 2, 3, 9], 5), [10], "peek where the second block differs", why=why)
    expect_equal(tree.match_prefix([1, 2, 3, 9], 5)[0], [10], "match_prefix there", why=why)


@task("4.1")
def test_a_match_ends_where_a_node_matches_only_in_part(part: ModuleType) -> None:
    """Where a node matches only in part the match ends: what hangs below it belongs to its end."""
    tree = tree_of(part, ([1, 1, 2, 2], [10, 11]), ([1, 1, 2, 2, 3, 3], [0, 0, 12]))
    why = "The third block's K and V depend on the second, which is another one here."
    expect_equal(tree.peek([1, 1, 3, 3], 5), [10], "what peek found", why=why)
    expect_equal(tree.match_prefix([1, 1, 3, 3], 5)[0], [10], "what match_prefix found", why=why)


@task("4.1")
def test_a_match_is_not_longer_than_asked(part: ModuleType) -> None:
    """A match has at most max_blocks blocks, and its node ends where it does."""
    tree = tree_of(part, ([1, 2, 3, 4, 5, 6], [10, 11, 12]))
    blocks, node = tree.match_prefix([1, 2, 3, 4, 5, 6], 2)
    why = "The caller keeps at least one token to compute, so it limits the match."
    expect_equal(blocks, [10, 11], "a match of at most 2 blocks", why=why)
    expect_equal(
        tree.path_blocks(node), [10, 11], "the path to its node",
        why="A match that ends inside a node splits it: who locks the node must lock what matched, "
        "no more.",
    )  # fmt: skip


@task("4.1")
@gives_up
def test_a_match_goes_as_far_as_it_can(part: ModuleType) -> None:
    """Where the last of a node's blocks differs, the others match, in a node below another too."""
    tree = tree_of(part, ([1, 1], [10]), ([1, 1, 2, 2, 3, 3, 4, 4], [0, 11, 12, 13]))
    rely(sorted(tree.all_blocks()) == [10, 11, 12, 13])
    why = "The blocks of a node are compared one by one, up to the first that differs."
    prompt = [1, 1, 2, 2, 3, 3, 9, 9]
    expect_equal(tree.peek(prompt, 4), [10, 11, 12], "what peek found", why=why)
    expect_equal(tree.match_prefix(prompt, 4)[0], [10, 11, 12], "what match_prefix found", why=why)


@task("4.1")
@gives_up
def test_a_limit_counts_from_the_root(part: ModuleType) -> None:
    """max_blocks counts all blocks of a match; where it ends at a node's end, nothing is cut."""
    tree, prompt = (
        tree_of(part, ([1, 1], [10]), ([1, 1, 2, 2, 3, 3], [0, 11, 12])),
        [1, 1, 2, 2, 3, 3],
    )
    rely(sorted(tree.all_blocks()) == [10, 11, 12] and is_sound(tree))
    for limit, blocks in ((0, []), (1, [10])):
        expect_equal(tree.match_prefix(prompt, limit)[0], blocks, f"at most {limit} blocks")
    expect_sound(tree, "Where the limit ends at the end of a node, nothing is cut.")
    expect_equal(tree.peek(prompt, 2), [10, 11], "at most 2 blocks, by peek")
    expect_equal(tree.match_prefix(prompt, 2)[0], [10, 11], "at most 2 blocks")


class Token(int):
    """A token whose comparisons are function calls, so that they can be counted."""

    def __eq__(self, other: object) -> bool:
        return int(self) == other

    def __hash__(self) -> int:
        return int(self)


@task("4.1")
def test_a_match_does_not_search_the_tree(part: ModuleType) -> None:
    """What a match costs hangs on the blocks that match, not on how much is cached."""
    calls = []
    for num_prompts in (10, 400):
        tree = part.RadixTree(2)
        for i in range(num_prompts):
            tree.insert([Token(i)] * 4, [2 * i, 2 * i + 1])
        note(f"# {num_prompts} prompts are cached; match the one in their middle")
        middle = [Token(num_prompts // 2)] * 4
        calls.append(count_calls(lambda tree=tree, middle=middle: tree.match_prefix(middle, 2)))  # type: ignore[misc]
    expect(
        calls[1] <= 2 * calls[0],
        f"a match takes {calls[0]} calls among 10 prompts, {calls[1]} among 400",
        why="Looked up by the tokens of its first block a child is found at once; searched for among "
        "all children it takes longer with every prompt that is cached.",
    )


@task("4.1")
def test_any_script_of_inserts_and_matches(part: ModuleType) -> None:
    """After any inserts, match_prefix and peek find what a dictionary of all prefixes finds."""
    run_machine(MatchMachine, part, runs=120, steps=12)


@task("4.2")
def test_insert_files_blocks_and_counts_what_was_there(part: ModuleType) -> None:
    """insert keeps the tree's own blocks for what it has, and takes over the rest."""
    tree = tree_of(part, ([1, 2, 3, 4], [10, 11]))
    existing, node = tree.insert([1, 2, 5, 6, 7, 8], [30, 31, 32])
    why = "Two requests may compute the same prefix; the caller frees the copies insert refuses."
    expect_equal(existing, 1, "blocks that were there already", why=why)
    expect_equal(tree.path_blocks(node), [10, 31, 32], "the path to the node from insert", why=why)
    expect_equal(sorted(tree.all_blocks()), [10, 11, 31, 32], "the tree's blocks", why=why)


@task("4.2")
def test_inserting_again_changes_nothing(part: ModuleType) -> None:
    """A prefix that is there whole is not filed twice."""
    tree = tree_of(part, ([1, 2, 3, 4], [10, 11]))
    existing, node = tree.insert([1, 2, 3, 4], [20, 21])
    expect_equal(existing, 2, "blocks that were there already")
    expect_equal(tree.path_blocks(node), [10, 11], "the path to the node from insert")
    expect_equal(tree.num_blocks, 2, "num_blocks")
    expect_equal(tree.num_evictable, 2, "num_evictable")


@task("4.2")
def test_tokens_beyond_the_blocks_are_not_filed(part: ModuleType) -> None:
    """Only len(block_ids) blocks are filed, though the request has more tokens."""
    tree = tree_of(part, ([1, 2, 3, 4, 5], [10]))
    expect_equal(tree.peek([1, 2, 3, 4], 2), [10], "what is found afterwards")
    expect_sound(
        tree, "A node has the tokens of its blocks, and no others: nothing half a block long."
    )


@task("4.2")
def test_the_caller_keeps_its_lists(part: ModuleType) -> None:
    """The tree copies what it is given: a request's token list grows on."""
    tree = tree_of(part)
    token_ids, blocks = [1, 2], [10]
    tree.insert(token_ids, blocks)
    token_ids[0] = 9
    blocks[0] = 99
    expect_equal(tree.peek([1, 2], 1), [10], "what is found after the caller's lists changed")


@task("4.2")
def test_any_script_of_inserts(part: ModuleType) -> None:
    """Whatever is inserted, every block is in the tree once and on the path of its tokens."""
    run_machine(InsertMachine, part, runs=100, steps=12)


@task("4.3")
@gives_up
def test_split_keeps_the_path(part: ModuleType) -> None:
    """split returns the upper half; the node itself becomes the lower half, on the same path."""
    tree, [node] = filed(part, ([1, 2, 3, 4, 5, 6], [10, 11, 12]))
    upper = tree.split(node, 1)
    expect_equal(tree.path_blocks(upper), [10], "the path to the upper half")
    expect_equal(
        tree.path_blocks(node), [10, 11, 12], "the path to the node that was split",
        why="Whoever holds the node as the end of a longer match still means the longer match.",
    )  # fmt: skip
    expect_equal(tree.peek([1, 2, 3, 4, 5, 6], 3), [10, 11, 12], "what is found afterwards")
    expect_equal((tree.num_blocks, tree.num_evictable), (3, 3), "blocks and evictable blocks")
    expect_sound(tree)


@task("4.3")
@gives_up
def test_both_halves_can_have_children(part: ModuleType) -> None:
    """After a split both halves can have children of their own."""
    filed(part, ([1, 1], [20]), ([1, 1, 5, 5], [0, 24]))
    tree, [node] = filed(part, ([1, 1, 2, 2, 3, 3], [10, 11, 12]))
    tree.split(node, 2)
    tree.insert([1, 1, 2, 2, 4, 4], [0, 0, 13])
    tree.insert([1, 1, 2, 2, 3, 3, 6, 6], [0, 0, 0, 14])
    for token_ids, blocks in (
        ([1, 1, 2, 2, 3, 3], [10, 11, 12]),
        ([1, 1, 2, 2, 4, 4], [10, 11, 13]),
        ([1, 1, 2, 2, 3, 3, 6, 6], [10, 11, 12, 14]),
    ):
        expect_equal(tree.peek(token_ids, 4), blocks, f"what is found for {token_ids}")
    expect_sound(tree)


@task("4.3")
@gives_up
def test_a_split_under_a_lock_protects_both_halves(part: ModuleType) -> None:
    """Locks on a node that is split go on protecting the whole path, and are undone one by one."""
    tree, [node] = filed(part, ([1, 2, 3, 4], [10, 11]))
    rely(locks_work(part))
    tree.lock(node)
    tree.lock(node)
    upper = tree.split(node, 1)
    why = "Every lock on the lower half is a lock on the upper half too: it starts with that count."
    expect_equal(tree.num_evictable, 0, "num_evictable while the node is locked", why=why)
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
    why = "The new branch is nobody's; the block above both is locked through the other."
    expect_equal(tree.num_evictable, 1, "num_evictable with one of two branches locked", why=why)
