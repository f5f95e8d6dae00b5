"""When each block was last used, as the nodes tell it; and scripts that use some of them."""

from types import ModuleType
from typing import Any

from grader.kit import quietly
from grader.kit.script import show
from grader.suites.radix_tree.trees import Insert, filed, rely

Ages = dict[int, int]
"""Block -> its node's `last_used`."""

MOST_NODES = 10_000
TWO: tuple[Insert, ...] = (([1, 1, 2, 2], [10, 11]), ([3, 3], [30]))
"""A node of two blocks, and another beside it."""
BELOW: tuple[Insert, ...] = (
    ([1, 1], [10]),
    ([1, 1, 2, 2, 3, 3], [0, 11, 12]),
    ([1, 1, 4, 4], [0, 13]),
    ([3, 3], [30]),
)
"""A node with two children, and another beside it."""
ROW = 12
CHAIN: tuple[Insert, ...] = (
    *(([5] * 2 * n, [50 + i for i in range(n)]) for n in range(1, ROW + 1)),
    ([3, 3], [30]),
)
"""A path of ROW nodes of one block, and another node beside it."""
LAST = list(range(50, 50 + ROW))
Use = tuple[str, tuple[Insert, ...], list[int], int, list[int]]
USES: tuple[Use, ...] = (
    ("a node matches whole", TWO, [1, 1, 2, 2], 2, [10, 11]),
    ("a node matches in part", TWO, [1, 1, 9, 9], 2, [10]),
    ("max_blocks ends the match", TWO, [1, 1, 2, 2], 1, [10]),
    ("the prompt goes on behind the match", TWO, [1, 1, 2, 2, 9, 9], 3, [10, 11]),
    ("a node that has children matches", BELOW, [1, 1], 1, [10]),
    ("a node matches whole below another", BELOW, [1, 1, 4, 4], 2, [10, 13]),
    ("a node matches in part below another", BELOW, [1, 1, 2, 2, 9, 9], 3, [10, 11]),
    ("a path of many nodes matches", CHAIN, [5] * 2 * ROW, ROW, LAST),
    ("nothing matches", BELOW, [9, 9], 1, []),
)
"""(what happens, what is filed, token_ids, max_blocks, the blocks that are found)."""


def ages_of(tree: Any) -> Ages:
    """Of every block. Gives the test up if the tree is made of other nodes than the given."""
    root, ages = getattr(quietly(tree), "_root", None), Ages()
    try:
        stack = list(root.children.values())  # type: ignore[union-attr]
        while stack and len(ages) < MOST_NODES:
            node = stack.pop()
            ages |= dict.fromkeys(node.blocks, node.last_used)
            stack += node.children.values()
    except (AttributeError, TypeError):
        rely(False)
    rely(all(isinstance(age, int | float) for age in ages.values()))
    return ages


def changed(before: Ages, after: Ages) -> list[int]:
    """The blocks that have another last use now."""
    return sorted(block for block, age in after.items() if age != before.get(block))


def told(blocks: list[int], after: Ages) -> str:
    """The marks of some blocks, in words."""
    return ", ".join(f"block {show(block)} used at {after[block]}" for block in sorted(blocks))


def marks_work(part: ModuleType) -> bool:
    """Whether a match marks the nodes of what it finds, and peek none."""
    for _, inserts, token_ids, limit, blocks in USES:
        tree, _ = filed(part, *inserts)
        tree.match_prefix([9, 9], 1)  # time goes by
        before = ages_of(tree)
        tree.peek(token_ids, limit)
        peeked = changed(before, ages_of(tree))
        tree.match_prefix(token_ids, limit)
        if peeked or changed(before, ages_of(tree)) != blocks:
            return False
    return True
