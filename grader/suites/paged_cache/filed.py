"""What the suites of task 3.8 look for in the tree, and the words for it."""

from grader.suites.paged_cache.cache_desk import CacheDesk

A = list(range(1, 21))
B = list(range(21, 41))

COMPUTED = (
    "Only what is computed can be reused, and the newest token's K and V are written in the next step: "
    "count the tokens that are computed, not those that are known."
)
SETTLED = (
    "A step in flight may still fail, and others would read what it left: file what num_settled_tokens "
    "counts."
)
OWN = "The tree is a holder of its own: it keeps its blocks when the request is gone."
ONCE = (
    "The tree keeps the blocks it had. Point the table at those, and only then give the duplicates "
    "back: the block manager's `replace` does both."
)

TWICE = (
    "Two references must go with a duplicate. The table's: `replace` gives it back. The tree's: it is "
    "never taken, since the tree takes over only what it did not have (table[existing:])."
)


def found(desk: CacheDesk, token_ids: list[int]) -> list[int]:
    """The blocks that the tree has for these tokens."""
    assert desk.tree is not None
    return desk.tree.peek(token_ids, len(token_ids))
