"""What a call costs grows with what the contract names, and with nothing else: counted, not timed."""

from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any

from grader.kit import Fault, start_script, task
from grader.kit.counted import CountedList
from grader.kit.growth import expect_growth
from grader.suites.radix_tree.trees import gives_up, rely, relying_on_all

SIZE = 40
Call = Callable[[], Any]

BESIDE = "A child is found by its key. Its siblings are neither looked through nor copied."
BEHIND = "A match ends at the first block that is not there. The prompt behind it is not read."
PATH = (
    "Work that is done again at each node of the path, for all nodes above it, grows with the square of "
    "the path."
)
JOINED = (
    "A list that is made anew at each node, from the one so far, is copied at each node: use `+=` on "
    "one list. A count over the path is kept as a running number."
)


def beside(part: ModuleType, count: int) -> Any:
    """A tree with that many nodes of two blocks below the root, filed under 0, 1, 2, ..."""
    tree = part.RadixTree(2)
    for i in range(count):
        tree.insert([i] * 4, [2 * i, 2 * i + 1])
    return tree


def in_a_row(part: ModuleType, count: int) -> tuple[Any, list[int], Any]:
    """A tree with a path of that many nodes of one block; the prompt; and the last node."""
    tree, prompt, node = part.RadixTree(2), list(range(2 * count)), None
    with relying_on_all():
        for n in range(1, count + 1):
            _, node = tree.insert(prompt[: 2 * n], list(range(n)))
    rely(tree.num_blocks == count)
    return tree, prompt, node


def counted(tree: Any) -> Any:
    """The tree. If it is made of the given nodes, what is read or joined of their blocks is counted."""
    with suppress(AttributeError, TypeError):
        stack = [*tree._root.children.values()]
        while stack:
            node = stack.pop()
            if type(node.blocks) is list:
                node.blocks = CountedList(node.blocks)
            stack += node.children.values()
    return tree


@task("4.1")
@gives_up
def test_a_match_costs_what_it_finds(part: ModuleType) -> None:
    """peek and match_prefix cost the blocks that match: no prompts beside, no prompt behind."""
    for name in ("peek", "match_prefix"):
        start_script()

        def among(n: int, name: str = name) -> Call:
            tree = beside(part, n)
            return lambda: getattr(tree, name)([1] * 4, 2)

        expect_growth(part, f"{name} of 2 blocks", "prompts beside", among, size=SIZE, why=BESIDE)

        def behind(n: int, name: str = name) -> Call:
            tree, prompt = beside(part, 2), [1] * 4 + list(range(2 * n))
            return lambda: getattr(tree, name)(prompt, n + 2)

        expect_growth(part, f"{name} of 2 blocks", "blocks behind", behind, size=SIZE, why=BEHIND)


@task("4.1")
@gives_up
def test_a_long_path_costs_its_length(part: ModuleType) -> None:
    """What peek and match_prefix cost grows with the nodes of the path, not with their square."""
    for name in ("peek", "match_prefix"):
        start_script()

        def along(n: int, name: str = name) -> Call:
            tree, prompt, _ = in_a_row(part, n)
            call = getattr(counted(tree), name)
            return lambda: call(prompt, n)

        why = f"{PATH} {JOINED}"
        expect_growth(part, name, "nodes on the path", along, size=SIZE, exponent=1, why=why)


@task("4.2")
@gives_up
def test_an_insert_costs_what_it_files(part: ModuleType) -> None:
    """An insert costs its match and one new node, however many prompts are filed beside it."""

    def matched(n: int) -> Call:
        tree = beside(part, n)
        return lambda: tree.match_prefix([n] * 4, 2)

    def filed(n: int) -> Call:
        tree = beside(part, n)
        return lambda: tree.insert([n] * 4, [2 * n, 2 * n + 1])

    what, beside_it = "match_prefix of nothing", "prompts beside"
    try:
        expect_growth(part, what, beside_it, matched, size=SIZE)
    except Fault:
        rely(False)  # task 4.1 tells
    start_script()
    expect_growth(part, "insert of 2 blocks", beside_it, filed, size=SIZE, why=BESIDE)


@task("4.3")
@gives_up
def test_a_split_costs_its_node(part: ModuleType) -> None:
    """A split costs the blocks of its node: not the nodes beside or below it, nor their square."""
    why = (
        "A split changes one node and its entry below the parent. All other nodes stay as they are."
    )

    def among(n: int) -> Call:
        tree = beside(part, n)
        _, node = tree.match_prefix([1] * 4, 2)
        rely(tree.path_blocks(node) == [2, 3])
        return lambda: tree.split(node, 1)

    expect_growth(part, "split", "nodes beside", among, size=SIZE, memory=False, why=why)

    def above(n: int) -> Call:
        tree = part.RadixTree(2)
        _, node = tree.insert([1] * 4, [0, 1])
        for i in range(n):
            tree.insert([1, 1, 1, 1, i, i], [0, 1, i + 2])
        return lambda: tree.split(node, 1)

    expect_growth(part, "split", "children", above, size=SIZE, memory=False, why=why)

    def long(n: int) -> Call:
        tree = part.RadixTree(2)
        _, node = tree.insert(list(range(2 * n)), list(range(n)))
        return lambda: tree.split(node, n // 2)

    moved = (
        "Each half gets its part of the lists by one slice. A token that is taken off the front of a "
        "list moves all those behind it."
    )
    expect_growth(part, "split", "blocks of the node", long, size=SIZE, exponent=1, why=moved)


@task("4.3")
@gives_up
def test_a_split_copies_no_siblings(part: ModuleType) -> None:
    """What a split takes of memory does not grow with the nodes beside it."""

    def among(n: int) -> Call:
        tree = beside(part, n)
        _, node = tree.match_prefix([1] * 4, 2)
        rely(tree.path_blocks(node) == [2, 3])
        return lambda: tree.split(node, 1)

    why = "The parent has one entry to change. Its dictionary is not made anew."
    expect_growth(part, "split", "nodes beside", among, size=4 * SIZE, why=why)


@task("4.4")
@gives_up
def test_a_lock_costs_its_path(part: ModuleType) -> None:
    """lock and unlock cost a step for each node of the path, and no more."""

    def locked(n: int) -> Call:
        tree, _, node = in_a_row(part, n)
        return lambda: tree.lock(node)

    def unlocked(n: int) -> Call:
        tree, _, node = in_a_row(part, n)
        tree.lock(node)
        return lambda: tree.unlock(node)

    for name, make in (("lock", locked), ("unlock", unlocked)):
        expect_growth(part, name, "nodes on the path", make, size=SIZE, exponent=1, why=PATH)


@task("4.5")
@gives_up
def test_an_eviction_costs_what_goes(part: ModuleType) -> None:
    """evict costs the leaves that go: not the blocks that stay in them, nor the nodes beside."""

    def of_one(n: int) -> Call:
        tree = part.RadixTree(2)
        tree.insert(list(range(2 * n)), list(range(n)))
        return lambda: tree.evict(1)

    why = "The end of the leaf's lists is cut off. What stays is neither copied nor turned around."
    expect_growth(part, "evict(1)", "blocks of the leaf", of_one, size=SIZE, why=why)

    def among(n: int) -> Call:
        tree = beside(part, n)
        return lambda: tree.evict(2)

    expect_growth(part, "evict of a leaf", "nodes beside", among, size=SIZE, why=BESIDE)

    def of_all(n: int) -> Call:
        tree = beside(part, n)
        counted(tree)
        return lambda: tree.evict(2 * n)

    why = f"{JOINED} Each leaf that goes costs a look-up and a turn of the queue."
    expect_growth(part, "evict", "leaves that go", of_all, size=SIZE, exponent=1, why=why)
