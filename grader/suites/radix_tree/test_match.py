"""Tasks 4.1 and 4.2: what is found and filed."""

from types import ModuleType

from grader.kit import expect_equal, note, run_machine, task
from grader.suites.radix_tree.shape import fault_in
from grader.suites.radix_tree.tree_machine import InsertMachine, MatchMachine
from grader.suites.radix_tree.trees import (
    expect_sound,
    filed,
    gives_up,
    is_sound,
    locks_work,
    rely,
    splits_work,
    tree_of,
)

LONGER = (
    "A match that ends inside a node splits it: a lock on the node must lock what matched, no more."
)
SHORTER = (
    "The node that match_prefix returns is the one that the match ends at, not one above it: keep hold "
    "of it while you mark those above it as used."
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
    path = tree.path_blocks(node)
    expect_equal(path, [10, 11], "the path to its node", why=LONGER if len(path) > 2 else SHORTER)


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


@task("4.1")
@gives_up
def test_what_a_match_returns_is_the_callers(part: ModuleType) -> None:
    """The blocks that a match or a peek returns are a new list: the caller appends its own to it."""
    tree = tree_of(part, ([1, 1], [10]))
    why = (
        "A request's block table begins with this list and grows: were it the node's own list, every "
        "block of the request would be in the tree."
    )
    for name in ("peek", "match_prefix"):
        blocks = getattr(tree, name)([1, 1], 1)
        blocks = blocks if name == "peek" else blocks[0]
        rely(blocks == [10])
        note(f"# the caller appends 99 to the list that {name} returned")
        blocks.append(99)
        expect_equal(tree.all_blocks(), [10], "the tree's blocks afterwards", why=why)


@task("4.1")
@gives_up
def test_peek_leaves_no_trace(part: ModuleType) -> None:
    """peek cuts no node, whatever it finds: a node that was filed whole is still whole."""
    tree, [node] = filed(part, ([1, 1, 2, 2, 3, 3], [10, 11, 12]))
    rely(splits_work(part))
    tree.peek([1, 1], 1)
    upper = tree.split(node, 2)
    expect_equal(
        tree.path_blocks(upper), [10, 11], "the path to the upper half of a node cut after 2 blocks",
        why="peek has cut the node already. Only match_prefix cuts: its caller locks what it finds.",
    )  # fmt: skip


@task("4.1")
@gives_up
def test_a_match_tells_the_leaves(part: ModuleType) -> None:
    """A match marks the nodes on its way as used; a leaf that is used stays where eviction finds it."""
    tree = tree_of(part)
    rely(locks_work(part))
    _, node = tree.insert([1, 1], [10])
    tree.lock(node)
    tree.unlock(node)
    rely(is_sound(tree))
    rely(tree.match_prefix([1, 1], 1)[0] == [10])
    why = "A leaf's entry in the queue is out of date once the leaf is used again: push a new one."
    expect_sound(tree, missed=why)


@task("4.1")
def test_any_script_of_inserts_and_matches(part: ModuleType) -> None:
    """After any inserts, match_prefix and peek find what a dictionary of all prefixes finds."""
    run_machine(MatchMachine, part, runs=120, steps=12)


@task("4.2")
@gives_up
def test_insert_files_blocks_and_counts_what_was_there(part: ModuleType) -> None:
    """insert keeps the tree's own blocks for what it has, and takes over the rest."""
    rely(splits_work(part))
    tree = tree_of(part, ([1, 2, 3, 4], [10, 11]))
    existing, node = tree.insert([1, 2, 5, 6, 7, 8], [30, 31, 32])
    told = {
        0: "0 is what the earlier call returned, whose tree was empty. Of this prompt the tree has a "
        "block: the number is how many blocks the match of this call finds.",
        2: "2 is how many of the blocks are new. The caller frees its copies of those that were there, "
        "so it needs their number.",
    }
    why = fault_in(tree) or (
        "Two requests may compute the same prefix; the caller frees the copies insert refuses."
    )
    what = "how many blocks insert says were there already"
    expect_equal(existing, 1, what, why=fault_in(tree) or told.get(existing, why))
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
    note("# the caller's own lists change: its tokens to [9, 2], its blocks to [99]")
    token_ids[0] = 9
    blocks[0] = 99
    got = tree.peek([1, 2], 1)
    kept = "blocks" if got == [99] else "tokens"
    why = f"The list of {kept} in the node is the caller's own list. A copy stays as it was filed."
    expect_equal(got, [10], "what is found after the caller's lists changed", why=why)


@task("4.2")
@gives_up
def test_any_script_of_inserts(part: ModuleType) -> None:
    """Whatever is inserted, every block is in the tree once and on the path of its tokens."""
    rely(splits_work(part))
    run_machine(InsertMachine, part, runs=100, steps=12)
