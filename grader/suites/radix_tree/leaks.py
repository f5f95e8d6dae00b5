"""Which task's methods keep what a tree keeps, when a prompt comes, is used, and goes again."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from grader.kit.memory import LEAST, kept_by
from grader.suites.radix_tree.conftest import METHODS
from grader.suites.radix_tree.trees import rely, relying_on_all
from solutions.radix_tree import RadixTree

CALLS = 16
SIZE, BLOCKS = 16, 64
"""Of a prompt: long enough for a note of one number a block, or of one block's tokens, to show."""


def cycle_of(kind: type) -> Callable[[], None]:
    """A call that files a prompt that is new each time, uses it in every way, and evicts it."""
    tree, number = kind(SIZE), 0

    def cycle() -> None:
        nonlocal number
        number += 1
        prompt = [number, *range(SIZE * BLOCKS - 1)]
        tree.insert(prompt, list(range(BLOCKS)))
        tree.peek(prompt, BLOCKS)
        _, node = tree.match_prefix(prompt, BLOCKS - 1)
        tree.lock(node)
        tree.split(node, 1)
        tree.unlock(node)
        tree.match_prefix([*prompt[:-1], number], BLOCKS)
        tree.evict(BLOCKS)
        rely(tree.num_blocks == tree.num_evictable == 0)  # or another test tells

    return cycle


def expect_no_leak_of(part: ModuleType, task: str, expect: Callable[[Any, str], None]) -> None:
    """`expect(cycle, what)` fails for a cycle that keeps anything. It is asked only where this task's
    methods are the cause: with the reference's in their place nothing is kept."""
    try:
        with relying_on_all():
            cycle = cycle_of(part.RadixTree)
            cycle()
            kept = kept_by(cycle, CALLS)
    except NotImplementedError as error:
        rely(f"task {task}" in str(error))  # of another task that is half written nothing is asked
        raise
    if kept < LEAST:
        return
    culprits = [each for each in METHODS if _keeps_nothing_without(part, each)]
    rely(task in culprits or (not culprits and task == "4.5"))
    expect(cycle_of(part.RadixTree), f"A prompt that is filed, used and evicted ({_names(task)})")


def _names(task: str) -> str:
    return ", ".join(name for name in METHODS[task] if not name.startswith("_"))


def _keeps_nothing_without(part: ModuleType, task: str) -> bool:
    lent = {name: vars(RadixTree)[name] for name in METHODS[task]}
    try:
        cycle = cycle_of(type("RadixTree", (part.RadixTree,), lent))
        cycle()
        return kept_by(cycle, CALLS) < LEAST
    except Exception:  # noqa: BLE001, a tree that is made otherwise
        return False
