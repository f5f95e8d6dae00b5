"""What belongs to the caller: lists that it hands in, and goes on using. And which tokens are equal."""

from types import ModuleType
from typing import Any

from grader.kit import Mismatch, expect_equal, note, quietly, start_script, task
from grader.suites.radix_tree.shape import fault_in
from grader.suites.radix_tree.trees import (
    filed,
    gives_up,
    locks_work,
    rely,
    relying_on_all,
    splits_work,
    tree_of,
)
from solutions.radix_tree.naive import NaivePrefixCache

LENT = "The list is the caller's, who goes on with it: a request's tokens, or its block table."
SIZE = 3
ALIKE = (
    ("the same tokens in another order", [5, 6, 7], [7, 6, 5]),
    ("other tokens of the same sum", [5, 6, 7], [4, 6, 8]),
    ("the same tokens, one of them twice", [5, 6, 6], [5, 5, 6]),
    ("the same digits", [1, 23, 4], [12, 3, 4]),
    ("another token between the same ones", [5, 6, 7], [5, 9, 7]),
    ("another last token", [5, 6, 7], [5, 6, 8]),
    ("a token that differs by 2 ** 8", [5, 6, 7], [5, 6 + 2**8, 7]),
    ("a token that differs by 2 ** 16", [5, 6, 7], [5, 6 + 2**16, 7]),
    ("a token that differs by 2 ** 31", [5, 6, 7], [5, 6 + 2**31, 7]),
)
"""(what they are, the tokens of a block, those of another that is not the same)."""


@task("4.1")
@gives_up
def test_blocks_that_are_alike_do_not_match(part: ModuleType) -> None:
    """A block matches if each of its tokens is the same, in its place: nothing less is enough."""
    for what, one, other in ALIKE:
        for before in ([], [2] * SIZE):
            start_script()
            note(f"# {what}")
            count = len(before) // SIZE
            tree = tree_of(part, (before + one, [10, 11][: count + 1]), block_size=SIZE)
            rely(len(tree.all_blocks()) == count + 1)
            why = f"The cached block has the tokens {one}, the prompt {other}: {what}. That is no match."
            expected = [10][:count]
            expect_equal(tree.peek(before + other, 2), expected, "what peek found", why=why)
            got = tree.match_prefix(before + other, 2)[0]
            expect_equal(got, expected, "what match_prefix found", why=why)


@task("4.1")
@gives_up
def test_equal_tokens_match_whatever_objects_they_are(part: ModuleType) -> None:
    """Tokens are compared as numbers: those of another prompt are other objects."""
    token_ids = [100_000 + i for i in range(3 * SIZE)]
    tree = tree_of(part, (token_ids, [10, 11, 12]), block_size=SIZE)
    same = [int(str(token)) for token in token_ids]
    why = (
        "The tokens are equal. Two equal numbers need not be one object: compare with ==, not `is`."
    )
    expect_equal(tree.peek(same, 3), [10, 11, 12], "what peek found", why=why)
    got = tree.match_prefix(same, 3)[0]
    expect_equal(got, [10, 11, 12], "what match_prefix found", why=why)


@task("4.1")
@gives_up
def test_a_match_leaves_the_prompt_alone(part: ModuleType) -> None:
    """peek and match_prefix only read the tokens that they are given."""
    rely(splits_work(part))
    for token_ids in ([1, 1, 2, 2, 3], [1, 1, 2, 2], [1, 1, 9, 9, 9], [9], []):
        for name in ("peek", "match_prefix"):
            for limit in (0, 1, 4):
                start_script()
                tree, _ = filed(part, ([1, 1, 2, 2], [10, 11]))
                given = [*token_ids]
                getattr(tree, name)(given, limit)
                expect_equal(given, token_ids, f"the caller's token_ids after {name}", why=LENT)


@task("4.1")
@gives_up
def test_what_is_found_is_what_is_there_now(part: ModuleType) -> None:
    """A prompt's list grows, others file and evict: each call finds what is there at its time."""
    rely(splits_work(part))
    for name in ("peek", "match_prefix"):
        start_script()
        look_while_things_change(part, name)


def look_while_things_change(part: ModuleType, name: str) -> None:
    """The same list is looked up, by `name`, before and after each change of it and of the tree."""
    tree, naive, prompt = tree_of(part), NaivePrefixCache(2), [1, 1]

    def look() -> None:
        got = getattr(tree, name)(prompt, 4)
        got = got if name == "peek" else got[0]
        why = (
            "The list is the same object as before, with the same limit, and something else has "
            "changed since: the list itself, or the tree. What an earlier call found does not count."
        )
        expect_equal(got, naive.peek(prompt, 4), f"what {name} found", why=why)

    def insert(token_ids: list[int], blocks: list[int]) -> None:
        tree.insert(token_ids, blocks)
        naive.insert(token_ids, blocks)
        rely(sorted(quietly(tree).all_blocks()) == sorted(naive.evictable()))

    def becomes(*tokens: int) -> None:
        prompt[2:] = tokens
        note(f"# the caller's list is {prompt} now")

    look()
    insert([1, 1], [10])
    look()
    insert([1, 1, 2, 2, 3, 3], [0, 11, 12])
    look()
    becomes(2, 2)
    look()
    becomes(2, 2, 3, 3)
    look()
    with relying_on_all():
        gone = tree.evict(1)
    rely(gone == [12])
    naive.remove(12)
    look()
    insert([1, 1, 2, 2, 3, 3], [0, 0, 13])
    look()
    becomes(7, 7)
    look()


@task("4.2")
@gives_up
def test_an_insert_leaves_its_arguments_alone(part: ModuleType) -> None:
    """insert changes neither of the lists that it is given, whatever part of them was there."""
    rely(splits_work(part))
    for token_ids, block_ids in (
        ([1, 1, 2, 2], [20, 21]),
        ([1, 1, 2, 2, 3, 3], [20, 21, 22]),
        ([1, 1, 8, 8], [20, 21]),
        ([8, 8, 9, 9, 9], [20, 21]),
        ([1, 1, 2, 2, 3, 3], [20]),
    ):
        start_script()
        tree, _ = filed(part, ([1, 1, 2, 2], [10, 11]))
        tokens, blocks = [*token_ids], [*block_ids]
        quietly(tree).match_prefix(tokens, len(blocks))
        rely(tokens == token_ids)
        tree.insert(tokens, blocks)
        expect_equal(tokens, token_ids, "the caller's token_ids after insert", why=LENT)
        expect_equal(blocks, block_ids, "the caller's block_ids after insert", why=LENT)


@task("4.2")
@gives_up
def test_what_is_filed_is_a_copy(part: ModuleType) -> None:
    """What the caller does with its lists after an insert changes nothing in the tree."""
    rely(splits_work(part))
    inserts = ([1, 1], [10]), ([3, 3, 4, 4], [30, 31]), ([1, 1, 2, 2, 5, 5], [0, 11, 12])
    tree = tree_of(part)
    for token_ids, block_ids in inserts:
        tokens, blocks = [*token_ids], [*block_ids]
        tree.insert(tokens, blocks)
        note("# the caller's lists grow, and then change throughout")
        tokens.append(9)
        blocks.append(90)
        tokens[:] = [9] * len(tokens)
        blocks[:] = [90] * len(blocks)
    for token_ids, expected in zip(
        (each for each, _ in inserts), ([10], [30, 31], [10, 11, 12]), strict=True
    ):
        why = (
            fault_in(tree) or "A node has lists of its own, of what was filed: copy what you keep."
        )
        expect_equal(tree.peek(token_ids, 4), expected, f"what is found for {token_ids}", why=why)


@task("4.2")
@gives_up
def test_blocks_come_in_any_sequence(part: ModuleType) -> None:
    """block_ids may be a list, a tuple or a range: a tree treats them alike from then on."""
    rely(splits_work(part))
    with relying_on_all():
        expected = _life_of(part, [10, 11, 12])
    for block_ids in ((10, 11, 12), range(10, 13)):
        start_script()
        kind = type(block_ids).__name__
        why = f"The node has a part of the {kind} itself. Its blocks are a list: make one of them."
        try:
            got = _life_of(part, block_ids)
        except (TypeError, AttributeError) as error:
            problem = f"after an insert of the blocks {block_ids}, a later call fails: {error}"
            raise Mismatch(problem, why=why) from error
        expect_equal(got, expected, f"what the calls return after blocks in a {kind}", why=why)


def _life_of(part: ModuleType, block_ids: Any) -> list[Any]:
    """What calls return on a tree with one node of these blocks."""
    tree = tree_of(part)
    tree.insert([1, 1, 2, 2, 3, 3], block_ids)
    said = [tree.peek([1, 1, 2, 2, 3, 3], 3), tree.evict(1), tree.match_prefix([1, 1], 1)[0]]
    existing, node = tree.insert([1, 1, 2, 2, 4, 4], [0, 0, 14])
    return [*said, existing, tree.path_blocks(node), tree.evict(4)]


@task("4.2")
@gives_up
def test_fewer_blocks_than_there_are(part: ModuleType) -> None:
    """An insert ends with the blocks that it is given, though the tree has more of its tokens."""
    rely(splits_work(part))
    for count in (0, 1, 2):
        start_script()
        tree, _ = filed(part, ([1, 1, 2, 2, 3, 3], [10, 11, 12]))
        rely(quietly(tree).match_prefix([1, 1, 2, 2, 3, 3], count)[0] == [10, 11][:count])
        existing, node = tree.insert([1, 1, 2, 2, 3, 3], [20, 21, 22][:count])
        why = (
            f"The caller has {count} blocks, and asks how many of these were there. The tree has more "
            "of the prompt, which is not asked for."
        )
        expect_equal(existing, count, "how many blocks were there already", why=why)
        expect_equal(tree.path_blocks(node), [10, 11][:count], "the path to the node", why=why)


@task("4.2")
@gives_up
def test_an_insert_below_a_lock(part: ModuleType) -> None:
    """What is filed below a locked node is not locked, and the locked node stays as it is."""
    rely(locks_work(part))
    for index, token_ids, fresh in (
        (0, [1, 1, 2, 2], [20]),
        (0, [1, 1, 2, 2, 3, 3], [20, 21]),
        (1, [3, 3, 4, 4, 5, 5], [20]),
    ):
        start_script()
        inserts = ([1, 1], [10]), ([3, 3, 4, 4], [30, 31])
        tree, nodes = filed(part, *inserts)
        path = inserts[index][1]
        tree.lock(nodes[index])
        evictable = tree.num_evictable
        rely(evictable == 3 - len(path))
        tree.insert(token_ids, [0] * len(path) + fresh)
        why = "The lock ends at its node. What is filed below it is a new leaf, without a lock."
        expect_equal(tree.num_evictable, evictable + len(fresh), "num_evictable", why=why)
        got = quietly(tree).path_blocks(nodes[index])
        why = "A handle stands for the end of its request's prefix. What comes below it is a new node."
        expect_equal(got, path, "the path to the node that is locked", why=why)
        tree.unlock(nodes[index])
        why = "The new leaf has no lock: with the one lock gone, every block can be evicted."
        expect_equal(tree.num_evictable, 3 + len(fresh), "num_evictable after unlock", why=why)


@task("4.2")
@gives_up
def test_a_request_files_as_it_grows(part: ModuleType) -> None:
    """A list that grows is filed again and again; what others filed meanwhile is kept and counted."""
    rely(splits_work(part))
    tree, naive, prompt = tree_of(part), NaivePrefixCache(2), [1, 1]
    steps = (
        (None, [10]),
        (None, [10, 11]),
        ([1, 1, 2, 2, 3, 3], [0, 0, 22]),
        (None, [10, 11, 12]),
        ([1, 1, 2, 2, 9, 9], [0, 0, 23]),
        (None, [10, 11, 12, 13]),
    )
    for other, blocks in steps:
        if other is None:
            tail = [len(blocks)] * 2 if len(blocks) > 1 else []
            prompt += tail
        token_ids = prompt if other is None else other
        rely(quietly(tree).peek(token_ids, 4) == naive.peek(token_ids, 4))
        existing, node = tree.insert(token_ids, blocks)
        why = "The tree may have changed since this list was filed last: each insert matches anew."
        expected = naive.insert(token_ids, blocks)
        expect_equal(existing, expected, "how many blocks were there already", why=why)
        path = naive.peek(token_ids, len(blocks))
        expect_equal(quietly(tree).path_blocks(node), path, "the path to the node", why=why)
