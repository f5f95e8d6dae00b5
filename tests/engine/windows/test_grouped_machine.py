"""GroupedCache under any sequence of what a scheduler may do, with the naive lists looking on."""

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from tests.engine.windows.grouped_bench import GroupedBench
from tests.engine.windows.test_cache_machine import RUNNING, WindowMachine
from tests.solutions.properties import effort


class GroupedMachine(WindowMachine):
    """Both pools are short now and then, and all that happens in one happens in the other."""

    bench: GroupedBench

    @initialize(
        num_full=st.integers(6, 40),
        num_blocks=st.integers(6, 20),
        block_size=st.integers(1, 4),
        window=st.integers(1, 11),
        prefix_caching=st.sampled_from([True, True, False]),
    )
    def start(  # type: ignore[override]
        self, num_full: int, num_blocks: int, block_size: int, window: int, prefix_caching: bool
    ) -> None:
        self.bench = GroupedBench(
            num_full, num_blocks, block_size, window, prefix_caching=prefix_caching
        )
        self.was_reset = False

    @rule(data=st.data(), num_tokens=st.integers(1, 40), keep_free=st.integers(0, 12))
    def allocate_with_reserve(self, data: st.DataObject, num_tokens: int, keep_free: int) -> None:
        """In both or in neither. Never granted where the full group lacks blocks or reserve, nor refused
        where both have all that is asked for."""
        request, cache = self.pick(data, RUNNING), self.bench.cache
        if request is None:
            return
        size = self.bench.size
        num_tokens = request.num_computed_tokens + num_tokens
        tables = (self.bench.full_table(request), self.bench.table(request))
        pools = (self.bench.full_blocks, self.bench.blocks)
        parts = (self.bench.grouped._full, self.bench.windowed)
        first = request.num_computed_tokens // size
        wanted = []
        for table, blocks in zip(tables, pools, strict=True):
            copied = first < len(table) and blocks.ref_count(table[first]) > 1
            wanted.append(max(0, -(-num_tokens // size) - len(table)) + copied)
        room = [part.num_available_blocks for part in parts]
        given_back = cache.stats()["given_back_blocks"]
        fits = cache.allocate(request, num_tokens, keep_free=keep_free)
        given_back = cache.stats()["given_back_blocks"] - given_back
        lacks = [count and count + keep_free > own for count, own in zip(wanted, room, strict=True)]
        assert fits or any(lacks)
        assert not (fits and lacks[0])
        if fits:
            longest = max(-(-num_tokens // size), len(tables[0]))
            assert len(self.bench.full_table(request)) == len(self.bench.table(request)) == longest
        else:
            assert (self.bench.full_table(request), self.bench.table(request)) == tables
            assert [part.num_available_blocks for part in parts] == room
            assert not given_back

    def teardown(self) -> None:
        """Without requests no block is used, and evicting everything returns them all."""
        super().teardown()
        if hasattr(self, "bench"):
            assert self.bench.full_blocks.num_free == self.bench.full_blocks.num_blocks


TestGroupedMachine = GroupedMachine.TestCase
TestGroupedMachine.settings = effort(80, steps=40)
