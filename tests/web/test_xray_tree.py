"""The tree that follows from the recorded calls is the tree that answered them, call by call."""

import random
from typing import Any

import pytest

from solutions.radix_tree import RadixTree
from tests.book.conftest import browser  # noqa: F401
from tests.web.recorded import CalledTree
from tests.web.xray_pages import opened, serving

pytestmark = pytest.mark.nightly

BLOCK = 2


class Play:
    """Random requests on a small tree: what is called, and what the tree is after each call."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.splits = 0
        self.tree = CalledTree(RadixTree(BLOCK))
        split = self.tree.inner.split

        def counted(node: Any, num_blocks: int) -> Any:
            self.splits += 1
            return split(node, num_blocks)

        self.tree.inner.split = counted
        self.next_block = 0
        self.locked: list[Any] = []
        self.steps: list[dict[str, Any]] = []

    def run(self, num_calls: int) -> list[dict[str, Any]]:
        while len(self.steps) < num_calls:
            before = self.splits
            self.random.choice([self.insert, self.insert, self.match, self.unlock, self.evict])()
            calls, self.tree.calls = self.tree.calls, []
            self.steps.append(
                {"calls": calls, "nodes": self.nodes(), "splits": self.splits - before}
                | {"evictable": self.tree.inner.num_evictable}
            )
        return self.steps

    def prompt(self) -> list[int]:
        return [self.random.choice((1, 2)) for _ in range(2 * self.random.randint(1, 6))]

    def insert(self) -> None:
        tokens = self.prompt()
        count = len(tokens) // BLOCK
        known = self.tree.inner.peek(tokens, count)
        fresh = range(self.next_block, self.next_block + count - len(known))
        self.next_block += len(fresh)
        self.tree.insert(tokens, [*known, *fresh])

    def match(self) -> None:
        blocks, node = self.tree.match_prefix(self.prompt(), 9)
        if blocks:
            self.tree.lock(node)
            self.locked.append(node)

    def unlock(self) -> None:
        if self.locked:
            self.tree.unlock(self.locked.pop(self.random.randrange(len(self.locked))))

    def evict(self) -> None:
        self.tree.evict(self.random.randint(1, 3))

    def nodes(self) -> list[Any]:
        found, below = [], [*self.tree.inner._root.children.values()]
        while below:
            node = below.pop()
            found.append([list(node.blocks), node.lock_count])
            below += node.children.values()
        return sorted(found)


@pytest.fixture(scope="module")
def played(browser: Any, tmp_path_factory: Any) -> list[Any]:  # noqa: F811
    """(what the page makes of the calls, what the tree was) after each call of 60 plays."""
    plays = [Play(seed).run(60) for seed in range(60)]
    files = tmp_path_factory.mktemp("files")
    with serving(files) as address, opened(browser, f"{address}/viewer.html") as (page, _):
        found = page.evaluate(
            """async (plays) => {
              const model = await import('./xray/tree-model.js');
              const { afterCalls, emptyTree, nodesOf, numEvictable } = model;
              const { callsOf } = await import('./xray/format.js');
              return plays.map((steps) => {
                let tree = emptyTree();
                return steps.map(({ calls }) => {
                  const next = afterCalls(tree, callsOf({ tree: calls }));
                  tree = next.tree;
                  return {
                    nodes: nodesOf(tree).map(({ blocks, locks }) => [blocks, locks]),
                    splits: next.events.filter(({ kind }) => kind === 'split').length,
                    evictable: numEvictable(tree),
                  };
                });
              });
            }""",
            plays,
        )
    return list(zip(plays, found, strict=True))


@pytest.mark.parametrize("what", ["nodes", "splits", "evictable"])
def test_the_page_s_tree_is_the_engine_s_after_every_call(played: Any, what: str):
    for real, found in played:
        for index, (mine, theirs) in enumerate(zip(found, real, strict=True)):
            value = sorted(mine[what]) if what == "nodes" else mine[what]
            assert value == theirs[what], [step["calls"] for step in real[: index + 1]]


def test_the_plays_split_lock_and_evict(played: Any):
    """Else they would show little."""
    steps = [step for real, _ in played for step in real]
    assert sum(step["splits"] for step in steps) > 100
    assert sum(len(call[2]) for step in steps for call in step["calls"] if call[0] == "evict") > 500
    assert max(count for step in steps for _, count in step["nodes"]) > 3
