"""Any sequence of calls gives what the dictionary of prefixes gives."""

from copy import deepcopy
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from solutions.radix_tree import RadixTree
from solutions.radix_tree.naive import NaivePrefixCache
from tests.solutions.properties import effort

# Two letters, so that prefixes meet and part often.
TOKENS = st.lists(st.integers(0, 1), max_size=14)
Lock = tuple[Any, list[int], int]


class TreeMachine(RuleBasedStateMachine):
    """Both get every call; the naive one is told which of the evictable blocks went."""

    @initialize(block_size=st.integers(1, 3))
    def start(self, block_size: int) -> None:
        self.size = block_size
        self.tree = RadixTree(block_size)
        self.naive = NaivePrefixCache(block_size)
        self.next_block = 0
        self.locks: list[Lock] = []
        self.filed: set[int] = set()

    @rule(token_ids=TOKENS)
    def insert(self, token_ids: list[int]) -> None:
        count = len(token_ids) // self.size
        fresh = list(range(self.next_block, self.next_block + count))
        self.next_block += count
        existing, node = self.tree.insert(token_ids, fresh)
        assert existing == self.naive.insert(token_ids, fresh)
        self.filed.update(fresh[existing:])
        path = self.tree.path_blocks(node)
        assert path == self.naive.match(token_ids, count)
        assert path == self.tree.match_prefix(token_ids, count)[0]

    @rule(token_ids=TOKENS, max_blocks=st.integers(0, 8))
    def match(self, token_ids: list[int], max_blocks: int) -> None:
        blocks, node = self.tree.match_prefix(token_ids, max_blocks)
        assert blocks == self.naive.match(token_ids, max_blocks)
        assert blocks == self.tree.path_blocks(node)

    @rule(token_ids=TOKENS, max_blocks=st.integers(0, 8))
    def peek(self, token_ids: list[int], max_blocks: int) -> None:
        """A copy of the naive cache answers: its `match` would count as a use."""
        expected = deepcopy(self.naive).match(token_ids, max_blocks)
        assert self.tree.peek(token_ids, max_blocks) == expected

    @rule(token_ids=TOKENS, max_blocks=st.integers(0, 8))
    def lock(self, token_ids: list[int], max_blocks: int) -> None:
        blocks, node = self.tree.match_prefix(token_ids, max_blocks)
        self.naive.match(token_ids, max_blocks)
        self.tree.lock(node)
        self.naive.lock(token_ids, len(blocks))
        self.locks.append((node, token_ids, len(blocks)))

    @precondition(lambda self: self.locks)
    @rule(data=st.data())
    def unlock(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.locks) - 1))
        node, token_ids, num_blocks = self.locks.pop(index)
        self.tree.unlock(node)
        self.naive.lock(token_ids, num_blocks, -1)

    @precondition(lambda self: self.locks)
    @rule(data=st.data())
    def split(self, data: st.DataObject) -> None:
        """Cut the last node of a locked path, if it is long enough; the path stays what it was."""
        node, _, _ = data.draw(st.sampled_from(self.locks))
        if len(node.blocks) > 1:
            whole = self.tree.path_blocks(node)
            kept = data.draw(st.integers(1, len(node.blocks) - 1))
            below = len(node.blocks) - kept
            assert self.tree.path_blocks(self.tree.split(node, kept)) == whole[:-below]
            assert self.tree.path_blocks(node) == whole

    @rule(count=st.integers(0, 6))
    def evict(self, count: int) -> None:
        evictable = self.naive.evictable()
        evicted = self.tree.evict(count)
        assert len(evicted) == min(count, len(evictable))
        for block in evicted:
            assert block in self.naive.may_evict(), "not the least recently used end"
            self.naive.remove(block)
            self.filed.remove(block)

    @invariant()
    def they_agree(self) -> None:
        if not hasattr(self, "tree"):
            return
        self.tree.check()
        assert self.tree.num_evictable == len(self.naive.evictable())
        assert self.tree.num_blocks == len(self.tree.all_blocks())
        assert set(self.tree.all_blocks()) == self.filed

    @invariant()
    def locked_paths_stay_whole(self) -> None:
        for node, token_ids, num_blocks in getattr(self, "locks", []):
            path = self.tree.path_blocks(node)
            assert len(path) == num_blocks
            assert path == self.tree.peek(token_ids, num_blocks)

    def teardown(self) -> None:
        """Unlocked, everything can be evicted."""
        if hasattr(self, "tree"):
            for node, _, _ in self.locks:
                self.tree.unlock(node)
            assert len(self.tree.evict(len(self.filed))) == len(self.filed)
            assert self.tree.all_blocks() == []


TestTreeMachine = TreeMachine.TestCase
TestTreeMachine.settings = effort(80, steps=40)
