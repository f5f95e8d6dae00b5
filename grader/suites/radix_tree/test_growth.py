"""What the operations cost: nothing in the tree is searched for, no token is copied again and again."""

import gc
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from types import ModuleType
from typing import Any

from grader.kit import Fault, count_calls, note, start_script, task
from grader.kit.counted import CountedList
from grader.kit.growth import line_that_grows
from grader.suites.radix_tree.trees import gives_up, rely

FEW, MANY = 20, 2000
LIMIT = 8
"""How many times longer a call may take among MANY prompts: a logarithm 2.5 times, a search 100."""
REPEATS = 30


class Token(int):
    """A token whose comparisons are function calls, so that they can be counted."""

    def __eq__(self, other: object) -> bool:
        return int(self) == other

    def __hash__(self) -> int:
        return int(self)


@task("4.1")
def test_a_match_does_not_search_the_tree(part: ModuleType) -> None:
    """What a match costs hangs on the blocks that match, not on how much is cached."""
    calls, looks = [], []
    for num_prompts in (10, 400):
        tree = part.RadixTree(2)
        for i in range(num_prompts):
            tree.insert([Token(i)] * 4, [2 * i, 2 * i + 1])
        note("tree = RadixTree(block_size=2)")
        note(f"for i in range({num_prompts}): tree.insert([i] * 4, [2 * i, 2 * i + 1])")
        note(f"tree.match_prefix([{num_prompts // 2}] * 4, 2)")
        middle = [Token(num_prompts // 2)] * 4
        looks.append(lambda tree=tree, middle=middle: tree.match_prefix(middle, 2))
        calls.append(count_calls(looks[-1]))
    if calls[1] > 2 * calls[0]:
        raise Fault(
            f"a match takes {calls[0]} calls among 10 prompts, {calls[1]} among 400",
            why="Looked up by the tokens of its first block a child is found at once; searched for "
            "among all children it takes longer with every prompt that is cached.",
            line=line_that_grows(part, *looks),
        )


class CountedTokens(list[int]):
    """A list of tokens that counts those that are read or copied, of its slices too."""

    num_read = 0

    def __getitem__(self, index: Any) -> Any:
        part = super().__getitem__(index)
        if not isinstance(index, slice):
            CountedTokens.num_read += 1
            return part
        CountedTokens.num_read += len(part)
        return CountedTokens(part)

    def __iter__(self) -> Any:
        CountedTokens.num_read += len(self)
        return super().__iter__()

    def copy(self) -> "CountedTokens":
        return self[:]


@task("4.1")
def test_a_match_reads_each_token_a_few_times(part: ModuleType) -> None:
    """A match compares the tokens of its blocks, and does not copy those behind them at each step."""
    for shape in ("a node for each block", "one node for all blocks"):
        tree, prompt = part.RadixTree(2), list(range(240))
        note(f"# 120 blocks of 2 tokens are cached, {shape}; a prompt differs in the last of them")
        for end in range(2, 240, 2) if shape == "a node for each block" else ():
            tree.insert(prompt[:end], range(end // 2))
        tree.insert(prompt, range(120))
        tokens = CountedTokens([*prompt[:-1], 999])
        for name in ("peek", "match_prefix"):
            CountedTokens.num_read = 0
            note(f"tree.{name}(token_ids, 120)")
            method = getattr(tree, name)
            method(tokens, 120)
            num_read = CountedTokens.num_read
            if num_read > 8 * len(tokens):
                same = CountedList(tokens)
                raise Fault(
                    f"{name} reads or copies {num_read} tokens of a prompt of 240: {shape}",
                    why="All that is left of the prompt, or all of it, copied at each step: work that "
                    "grows with the square of its length. Slice one block, or what the node can match.",
                    line=line_that_grows(part, lambda: None, partial(method, same, 120)),
                )


Use = Callable[[Any, int, Any], None]
"""`use(tree, i, timed)` makes a call in `timed`, with i a prompt that is new."""


def small_and_large(part: ModuleType) -> list[Any]:
    """A tree with FEW prompts, and one with MANY."""
    trees = []
    for num_prompts in (FEW, MANY):
        tree = part.RadixTree(2)
        for i in range(num_prompts):
            tree.insert([i, i], [i])
        trees.append(tree)
    return trees


def slowdown(part: ModuleType, what: str, use: Use) -> float:
    """How many times longer a call takes in a large tree."""
    least = []
    for tree, num_prompts in zip(small_and_large(part), (FEW, MANY), strict=True):
        note("tree = RadixTree(block_size=2)")
        note(f"for i in range({num_prompts}): tree.insert([i, i], [i])")
        stopwatch = Stopwatch()
        for i in range(REPEATS):
            use(tree, num_prompts + i, stopwatch)
        least.append(stopwatch.least)
        note(f"# {what}: {1e6 * least[-1]:.1f} microseconds, the shortest of {REPEATS} times")
    return least[1] / least[0]


def expect_no_search(part: ModuleType, what: str, use: Use) -> None:
    """In a large tree a call is about as quick as in a small one."""
    times = slowdown(part, what, use)
    if times > LIMIT:
        few, many = small_and_large(part)
        line = line_that_grows(
            part,
            lambda: use(few, FEW, nullcontext()),
            lambda: use(many, MANY, nullcontext()),
        )
        problem = f"{what} takes {times:.0f} times as long among {MANY} prompts as among {FEW}"
        raise Fault(problem, why=SEARCHES[what], line=line)


class Stopwatch:
    """Times the body of a `with`; no garbage is collected there. least: the shortest, in seconds."""

    least = float("inf")

    def __enter__(self) -> None:
        gc.disable()
        self._began = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        self.least = min(self.least, time.perf_counter() - self._began)
        gc.enable()


COUNTED = "num_blocks and num_evictable are running numbers: add and subtract what changes."
SEARCHES = {
    "insert": f"An insert costs its match and one new node. {COUNTED}",
    "lock and unlock": f"A lock costs a step for each node of the path. {COUNTED}",
    "evict": "Nothing is searched for: the queue has the leaf that was used longest ago on top.",
}


@task("4.2")
@gives_up
def test_insert_does_not_count_the_tree(part: ModuleType) -> None:
    """What an insert costs does not grow with what is cached."""

    def match(tree: Any, i: int, timed: Any) -> None:
        with timed:
            tree.match_prefix([i - 1, i - 1], 1)
        tree.insert([i, i], [i])

    rely(slowdown(part, "match", match) <= LIMIT)  # or task 4.1 tells
    start_script()

    def insert(tree: Any, i: int, timed: Any) -> None:
        with timed:
            tree.insert([i, i], [i])
            _ = tree.num_blocks

    expect_no_search(part, "insert", insert)


@task("4.4")
def test_locking_does_not_count_the_tree(part: ModuleType) -> None:
    """What a lock costs does not grow with what is cached."""

    def lock(tree: Any, i: int, timed: Any) -> None:
        _, node = tree.match_prefix([1, 1], 1)
        with timed:
            tree.lock(node)
            _ = tree.num_evictable
            tree.unlock(node)

    expect_no_search(part, "lock and unlock", lock)


@task("4.5")
def test_eviction_does_not_scan_the_tree(part: ModuleType) -> None:
    """What an eviction costs hardly grows with what is cached: the next leaf to go is known."""

    def evict(tree: Any, i: int, timed: Any) -> None:
        tree.match_prefix([i - 1, i - 1], 1)
        with timed:
            gone = tree.evict(1)
        tree.insert([i, i], gone or [10 * i])

    expect_no_search(part, "evict", evict)
