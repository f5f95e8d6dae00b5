"""Random scripts of calls on a radix tree and on the dictionary of prefixes that is its oracle."""

from typing import Any

from hypothesis import reject
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from grader.kit import Machine, expect, note, quietly, watch
from grader.suites.radix_tree.shape import fault_in
from grader.suites.radix_tree.trees import QUEUE, drawn
from solutions.radix_tree.naive import NaivePrefixCache
from yaie.core.errors import InvariantError

# Two letters, so that prefixes meet and part often.
TOKENS = st.lists(st.integers(0, 1), max_size=10)
LIMIT = st.integers(0, 6)


PROTECTED = "A lock on a node protects the whole path from the root down to it."
ORDER = (
    "Unlocked leaves go first, the least recently used before the others, each from its end: what is "
    "left must still be a prefix."
)
BROKEN = "An invariant of the tree does not hold after the last call."


class InsertMachine(Machine):
    """Inserts, and what is found afterwards. Others add rules to it."""

    grades = frozenset({"4.2"})

    def __init__(self) -> None:
        super().__init__()
        self.next_block = 0
        self.filed: set[int] = set()
        self.is_over = False  # a claim did not hold: the state says nothing any more
        self.last = ""  # the task of the last call, as far as it is to blame for a broken invariant

    @initialize(block_size=st.integers(1, 3))
    def start(self, block_size: int) -> None:
        note(f"tree = RadixTree(block_size={block_size})")
        self.size = block_size
        self.tree = watch(self.part.RadixTree(block_size), "tree", drawn)
        self.quiet_tree = quietly(self.tree)
        self.naive = NaivePrefixCache(block_size)

    def claim(self, task: str, got: Any, expected: Any, what: str, why: str = "") -> None:
        self.is_over |= got != expected
        super().claim(task, got, expected, what, why)

    @rule(token_ids=TOKENS)
    def insert(self, token_ids: list[int]) -> None:
        count = len(token_ids) // self.size
        fresh = list(range(self.next_block, self.next_block + count))
        self.next_block += count
        found = self.quiet_tree.peek(token_ids, count)
        self.claim("4.1", found, self.naive.peek(token_ids, count), "what peek found")
        self.about_to_end_at(token_ids, len(found))
        existing, node = self.tree.insert(token_ids, fresh)
        self.last = "4.2"
        expected = self.naive.insert(token_ids, fresh)
        self.claim("4.2", existing, expected, "how many blocks insert says were there already")
        self.filed.update(fresh[existing:])
        path = self.quiet_tree.path_blocks(node)
        self.claim(
            "4.2", path, self.naive.peek(token_ids, count), "the path to the node it returned"
        )

    def about_to_end_at(self, token_ids: list[int], num_blocks: int) -> None:
        """Told before a match or an insert whose shared part ends there, which may split a node."""

    @invariant()
    def every_invariant_holds(self) -> None:
        if hasattr(self, "tree"):
            broken = ""
            try:
                self.quiet_tree.check()
            except InvariantError as error:
                broken = str(error)
            self.is_over |= bool(broken)
            if broken and self.last not in self.grades:
                reject()
            why = QUEUE if "eviction misses" in broken else fault_in(self.tree) or BROKEN
            expect(not broken, f"check() finds the tree broken: {broken}", why=why)

    @invariant()
    def every_block_is_there_once(self) -> None:
        if hasattr(self, "tree"):
            blocks = sorted(self.quiet_tree.all_blocks())
            self.claim("4.2", blocks, sorted(self.filed), "the tree's blocks")
            self.claim("4.2", self.tree.num_blocks, len(self.filed), "num_blocks")


class MatchMachine(InsertMachine):
    """And matches, which may end in the middle of a node."""

    grades = frozenset({"4.1"})

    @rule(token_ids=TOKENS, max_blocks=LIMIT)
    def match(self, token_ids: list[int], max_blocks: int) -> None:
        expected = self.naive.match(token_ids, max_blocks)
        self.about_to_end_at(token_ids, len(expected))
        blocks, node = self.tree.match_prefix(token_ids, max_blocks)
        self.last = "4.3"
        self.claim("4.1", blocks, expected, "the blocks that match_prefix found")
        path = self.quiet_tree.path_blocks(node)
        self.claim("4.1", path, expected, "the path to the node it returned")

    @rule(token_ids=TOKENS, max_blocks=LIMIT)
    def peek(self, token_ids: list[int], max_blocks: int) -> None:
        expected = self.naive.peek(token_ids, max_blocks)
        self.claim("4.1", self.tree.peek(token_ids, max_blocks), expected, "what peek found")


class LockMachine(MatchMachine):
    """And locks on nodes, with splits under them."""

    grades = frozenset({"4.4"})

    def __init__(self) -> None:
        super().__init__()
        self.locks: list[tuple[Any, list[int], int]] = []

        self.cut_under_lock = False

    def about_to_end_at(self, token_ids: list[int], num_blocks: int) -> None:
        """A split under a lock is task 4.3's: from here on, so is what is evictable."""
        end = num_blocks * self.size
        self.cut_under_lock |= any(
            0 < num_blocks < locked and token_ids[:end] == locked_ids[:end]
            for _, locked_ids, locked in self.locks
        )

    @rule(token_ids=TOKENS, max_blocks=LIMIT)
    def lock(self, token_ids: list[int], max_blocks: int) -> None:
        expected = self.naive.match(token_ids, max_blocks)
        self.about_to_end_at(token_ids, len(expected))
        blocks, node = self.tree.match_prefix(token_ids, max_blocks)
        self.claim("4.1", blocks, expected, "the blocks that match_prefix found")
        path = self.quiet_tree.path_blocks(node)
        self.claim("4.1", path, expected, "the path to the node it returned")
        self.tree.lock(node)
        self.last = "4.4"
        self.naive.lock(token_ids, len(blocks))
        self.locks.append((node, token_ids, len(blocks)))

    @precondition(lambda self: self.locks)
    @rule(data=st.data())
    def unlock(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.locks) - 1))
        node, token_ids, num_blocks = self.locks.pop(index)
        self.tree.unlock(node)
        self.last = "4.4"
        self.naive.lock(token_ids, num_blocks, -1)

    @invariant()
    def what_is_evictable_is_known(self) -> None:
        if hasattr(self, "tree"):
            expected = len(self.naive.evictable())
            task = "4.3" if self.cut_under_lock else "4.4"
            self.claim(task, self.tree.num_evictable, expected, "num_evictable", PROTECTED)

    @invariant()
    def locked_paths_stay_whole(self) -> None:
        for node, token_ids, num_blocks in self.locks:
            path = self.quiet_tree.path_blocks(node)
            self.claim("4.3", len(path), num_blocks, f"the path to the node locked for {token_ids}")


class EvictMachine(LockMachine):
    """And eviction, block by block in the order of last use."""

    grades = frozenset({"4.5"})

    @rule(count=st.integers(0, 6))
    def evict(self, count: int) -> None:
        evictable = self.naive.evictable()
        self.is_over = True  # until everything below has held
        evicted = self.tree.evict(count)
        self.last = "4.5"
        for block in evicted:
            expect(
                block in evictable, f"block {block} was evicted though it is locked", why=PROTECTED
            )
            allowed = sorted(self.naive.may_evict())
            expect(
                block in allowed, f"block {block} went, but it is the turn of {allowed}", why=ORDER
            )
            self.naive.remove(block)
            self.filed.remove(block)
        self.is_over = False
        self.claim("4.5", len(evicted), min(count, len(evictable)), "how many blocks were evicted")

    def teardown(self) -> None:
        """Unlocked, everything can be evicted."""
        if hasattr(self, "tree") and not self.is_over:
            for node, _, _ in self.locks:
                self.tree.unlock(node)
            self.last = "4.4"
            self.every_invariant_holds()
            evicted = sorted(self.tree.evict(len(self.filed)))
            self.claim("4.5", evicted, sorted(self.filed), "what goes once everything is unlocked")
            self.claim("4.5", self.quiet_tree.all_blocks(), [], "what is left after that")
