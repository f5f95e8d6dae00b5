"""Any sequence of calls leaves BlockManager and its naive sibling alike, but for the names of blocks."""

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from solutions.paged_cache import BlockManager
from solutions.paged_cache.naive import NaiveBlockManager
from tests.solutions.properties import effort
from yaie.core.errors import YaieError

KEYS = st.sampled_from("abcd")
Blocks = Sequence[int]
Call = Callable[[Any, Callable[[Blocks], list[int]]], Any]


def attempt(
    call: Call, manager: Any, names: Callable[[Blocks], list[int]]
) -> tuple[Any, type[YaieError] | None]:
    try:
        return call(manager, names), None
    except YaieError as error:
        return None, type(error)


class BlockMachine(RuleBasedStateMachine):
    """Both managers get every call. Each may hand out any free block, so `_naive_name` translates."""

    @initialize(num_blocks=st.integers(1, 8), num_host_blocks=st.integers(0, 6))
    def start(self, num_blocks: int, num_host_blocks: int) -> None:
        self.real = BlockManager(num_blocks, 4, num_host_blocks)
        self.naive = NaiveBlockManager(num_blocks, 4, num_host_blocks)
        self.naive_name = list(range(num_blocks))
        self.holds: list[int] = []
        self.on_host: dict[str, list[int]] = {}

    def both(self, call: Call) -> tuple[Any, Any] | None:
        """The answers of the real manager and of the naive one; None if both fail, alike."""
        expected, expected_error = attempt(call, self.naive, self.translate)
        answer, error = attempt(call, self.real, list)
        assert error is expected_error
        return None if error else (answer, expected)

    def translate(self, blocks: Blocks) -> list[int]:
        return [self.naive_name[block] for block in blocks]

    def rename(self, blocks: Blocks, naive_blocks: Blocks) -> None:
        """Both have just handed these out: from now on they are the same blocks."""
        assert len(blocks) == len(naive_blocks)
        names = self.naive_name
        for block, name in zip(blocks, naive_blocks, strict=True):
            other = names.index(name)
            names[block], names[other] = name, names[block]

    def some_blocks(self, data: st.DataObject, most: int = 3) -> list[int]:
        block = st.integers(0, self.real.num_blocks - 1)
        return data.draw(st.lists(block, max_size=most, unique=True))

    def table(self, key: str) -> list[int]:
        return self.real.get_physical_blocks(key)

    @rule(key=KEYS, count=st.integers(0, 4))
    def allocate(self, key: str, count: int) -> None:
        given = self.both(lambda blocks, _: blocks.allocate(key, count))
        if given:
            self.rename(*given)

    @rule(key=KEYS, data=st.data())
    def share(self, key: str, data: st.DataObject) -> None:
        chosen = self.some_blocks(data)
        self.both(lambda blocks, name: blocks.share(key, name(chosen)))

    @rule(data=st.data())
    def hold(self, data: st.DataObject) -> None:
        chosen = self.some_blocks(data)
        if self.both(lambda blocks, name: blocks.hold(name(chosen))):
            self.holds += chosen

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        """One block, held or not, or several that are."""
        chosen = self.some_blocks(data, most=1)
        if self.holds and data.draw(st.booleans()):
            chosen = data.draw(st.permutations(self.holds))[: data.draw(st.integers(1, 3))]
        if self.both(lambda blocks, name: blocks.release(name(chosen))):
            for block in chosen:
                self.holds.remove(block)

    @rule(key=KEYS)
    def free(self, key: str) -> None:
        self.both(lambda blocks, _: blocks.free(key))

    @precondition(lambda self: any(map(self.table, "abcd")))
    @rule(data=st.data())
    def replace(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from([key for key in "abcd" if self.table(key)]))
        index = data.draw(st.integers(0, len(self.table(key)) - 1))
        chosen = self.some_blocks(data)[: len(self.table(key)) - index]
        self.both(lambda blocks, name: blocks.replace(key, index, name(chosen)))

    @precondition(lambda self: any(map(self.table, "abcd")))
    @rule(data=st.data())
    def copy_on_write(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from([key for key in "abcd" if self.table(key)]))
        index = data.draw(st.integers(0, len(self.table(key)) - 1))
        old = self.table(key)[index]
        pairs = self.both(lambda blocks, _: blocks.copy_on_write(key, index))
        if pairs and pairs != (None, None):
            (copied, fresh), (_, naive_fresh) = pairs
            assert copied == old
            self.rename([fresh], [naive_fresh])

    @precondition(lambda self: any(map(self.table, "abcd")))
    @rule(data=st.data())
    def swap_out(self, data: st.DataObject) -> None:
        movable = [key for key in "abcd" if self.table(key) and key not in self.on_host]
        key = data.draw(st.sampled_from(movable)) if movable else None
        if key is None:
            return
        table = list(self.table(key))
        if moves := self.both(lambda blocks, _: blocks.swap_out(key)):
            assert [device for device, _ in moves[0]] == table
            self.on_host[key] = [host for _, host in moves[0]]

    @precondition(lambda self: self.on_host)
    @rule(data=st.data())
    def swap_in(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.on_host)))
        if self.table(key):
            self.both(lambda blocks, _: blocks.free(key))
        held = [block for block in self.some_blocks(data) if self.real.ref_count(block)]
        shared = held[: len(self.on_host[key])]
        if moves := self.both(lambda blocks, name: blocks.swap_in(key, name(shared))):
            real, naive = moves
            assert [host for host, _ in real] == self.on_host.pop(key)[len(shared) :]
            self.rename([device for _, device in real], [device for _, device in naive])

    @precondition(lambda self: self.on_host)
    @rule(data=st.data())
    def discard_swapped(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.on_host)))
        self.both(lambda blocks, _: blocks.discard_swapped(key))
        del self.on_host[key]

    @invariant()
    def they_agree(self) -> None:
        if not hasattr(self, "real"):
            return
        real, naive = self.real, self.naive
        real.check()
        for block, name in enumerate(self.naive_name):
            assert real.ref_count(block) == naive.ref_count(name)
        for key in "abcd":
            assert self.translate(self.table(key)) == naive.get_physical_blocks(key)
            assert real.num_swapped_blocks(key) == naive.num_swapped_blocks(key)
        assert (real.num_free, real.num_free_host) == (naive.num_free, naive.num_free_host)


TestBlockMachine = BlockMachine.TestCase
TestBlockMachine.settings = effort(60, steps=40)
