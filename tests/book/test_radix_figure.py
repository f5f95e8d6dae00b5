"""The figure `radix-tree`: its port does what the reference does, and a reader can play with it."""

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from book.tools.mdbook import ROOT
from book.tools.traces import trace_file
from solutions.radix_tree import RadixTree
from tests.book.reading import PHONE, reading
from tests.marks import nightly_but

THEME = ROOT / "book/theme/figures"
STEPS = json.loads(trace_file("radix-tree").read_text("utf-8"))["steps"]
OPERATIONS = 400
BLOCK_SIZE = 2

REPLAY = """([size, calls]) => {
  const tree = new radixPort.RadixTree(size);
  const nodes = [];
  const dump = () => tree.nodes().map((node) =>
    [tree.pathBlocks(node), [...node.blocks], node.lockCount, node.lastUsed]);
  const keep = ([answer, node]) => { nodes.push(node); return answer; };
  return calls.map(([name, ...given]) => {
    let answer = null;
    if (name === 'match') answer = keep(tree.matchPrefix(...given));
    if (name === 'insert') answer = keep(tree.insert(...given));
    if (name === 'lock') tree.lock(nodes[given[0]]);
    if (name === 'unlock') tree.unlock(nodes[given[0]]);
    if (name === 'evict') answer = tree.evict(...given);
    if (name === 'peek') answer = tree.peek(...given);
    return [answer, tree.numBlocks, tree.numEvictable, dump()];
  });
}"""


@pytest.fixture(scope="module")
def page(browser: Any) -> Iterator[Any]:
    page = browser.new_page()
    page.add_script_tag(path=str(THEME / "radix-port.js"))
    yield page
    page.close()


class Watched:
    """The reference under random calls, each noted with its answer and the tree that it leaves."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.tree = RadixTree(BLOCK_SIZE)
        self.nodes: list[Any] = []
        self.locked: list[int] = []
        self.next_block = 0
        self.calls: list[list[Any]] = []
        self.states: list[list[Any]] = []

    def tokens(self) -> list[int]:
        """Prompts of few different tokens, so that many begin alike."""
        return [self.random.randint(0, 1) for _ in range(self.random.randint(0, 14))]

    def step(self) -> None:
        kind = self.random.choice(["match", "insert", "insert", "lock", "unlock", "evict", "peek"])
        getattr(self, kind)()

    def match(self) -> None:
        tokens, most = self.tokens(), self.random.randint(0, 7)
        blocks, node = self.tree.match_prefix(tokens, most)
        self.nodes.append(node)
        self.note(["match", tokens, most], blocks)

    def insert(self) -> None:
        tokens = self.tokens()
        count = len(tokens) // BLOCK_SIZE
        known = self.tree.peek(tokens, count)
        fresh = range(self.next_block, self.next_block + count - len(known))
        self.next_block += len(fresh)
        existing, node = self.tree.insert(tokens, [*known, *fresh])
        self.nodes.append(node)
        self.note(["insert", tokens, [*known, *fresh]], existing)

    def lock(self) -> None:
        """Only what is still in the tree may be locked."""
        filed = set(self.tree.all_blocks())
        alive = [
            at for at, node in enumerate(self.nodes) if set(node.blocks) & filed and node.parent
        ]
        if alive:
            at = self.random.choice(alive)
            self.locked.append(at)
            self.tree.lock(self.nodes[at])
            self.note(["lock", at], None)

    def unlock(self) -> None:
        if self.locked:
            at = self.locked.pop(self.random.randrange(len(self.locked)))
            self.tree.unlock(self.nodes[at])
            self.note(["unlock", at], None)

    def evict(self) -> None:
        count = self.random.randint(0, 5)
        self.note(["evict", count], self.tree.evict(count))

    def peek(self) -> None:
        tokens = self.tokens()
        self.note(["peek", tokens, 7], self.tree.peek(tokens, 7))

    def note(self, call: list[Any], answer: Any) -> None:
        def below(node: Any) -> list[Any]:
            return [each for child in node.children.values() for each in (child, *below(child))]

        nodes = [
            [self.tree.path_blocks(node), list(node.blocks), node.lock_count, node.last_used]
            for node in below(self.tree._root)
        ]
        self.calls.append(call)
        self.states.append([answer, self.tree.num_blocks, self.tree.num_evictable, nodes])


@pytest.mark.parametrize("seed", nightly_but([0], range(3)))
def test_the_port_is_the_reference_after_each_of_hundreds_of_calls(page, seed):
    watched = Watched(seed)
    while len(watched.calls) < OPERATIONS:
        watched.step()
    watched.tree.check()
    kinds = {call[0] for call in watched.calls}
    assert kinds == {"match", "insert", "lock", "unlock", "evict", "peek"}
    made = page.evaluate(REPLAY, [BLOCK_SIZE, watched.calls])
    for call, expected, found in zip(watched.calls, watched.states, made, strict=True):
        assert found == expected, call


def test_a_tree_can_be_taken_up_as_it_was_shown(page):
    shown = page.evaluate(
        "steps => steps.map(({ nodes }) => radixPort.RadixTree.from(4, nodes).shown())", STEPS
    )
    assert shown == [step["nodes"] for step in STEPS]


@pytest.mark.parametrize("size", [None, pytest.param(PHONE, marks=pytest.mark.nightly)])
def test_a_prompt_of_the_reader_s_own(browser, built, size):
    with reading(browser, built, "radix-tree", **({"size": size} if size else {})) as (
        opened,
        wrong,
    ):
        figure = opened.locator("#figure-radix-tree")
        figure.get_by_role("button", name="Show without guessing").click()
        figure.get_by_label("Prompt").fill("Be brief. What is a block?")
        figure.get_by_role("button", name="Clear").click()
        for _ in range(2):
            figure.get_by_role("button", name="Ask").click()
            figure.locator(".stage").press("End")
        said = figure.locator(".said")
        assert "6 blocks" in said.inner_text()
        assert "2 locks" in figure.locator(".stage svg").get_attribute("aria-label")
        figure.get_by_label("Prompt").fill("Be brief. Who are you?")
        figure.get_by_role("button", name="Ask").click()
        figure.locator(".stage").press("End")
        assert "3 nodes" in figure.locator(".stage svg").get_attribute("aria-label")
        for _ in range(3):
            figure.get_by_role("button", name="Finish").click()
        figure.get_by_role("button", name="Evict").click()
        assert "evict" in said.inner_text().lower()
        assert wrong == []
