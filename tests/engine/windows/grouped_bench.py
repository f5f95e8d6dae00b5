"""A GroupedCache driven by hand: what is computed is looked for in both groups of layers."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from grader.kit.toy_model import ToyExecutor
from solutions import paged_cache
from solutions.paged_cache import BlockManager
from solutions.radix_tree import RadixTree
from tests.engine.windows.bench import WindowedBench
from yaie.core.batch import ScheduledRequest, StepPlan
from yaie.core.request import Request, RequestStatus
from yaie.engine.windows.grouped import make_grouped


class GroupedBench(WindowedBench):
    """Plays the scheduler. `table` is that of the layers with a window, `blocks` are theirs."""

    def __init__(
        self,
        num_full: int,
        num_windowed: int,
        block_size: int,
        window: int,
        *,
        prefix_caching: bool = True,
    ) -> None:
        super().__init__(num_windowed, block_size, window, prefix_caching=prefix_caching)
        self.full_blocks = BlockManager(num_full, block_size)
        tree = RadixTree(block_size) if prefix_caching else None
        self.grouped = make_grouped(
            paged_cache, self.full_blocks, tree, self.windowed, num_windowed
        )
        self.cache = cast(Any, self.grouped)
        self.full_executor = ToyExecutor(block_size)

    def table(self, request: Request) -> list[int]:
        return list(self.grouped.windowed_table(request))

    def full_table(self, request: Request) -> list[int]:
        return list(self.grouped.block_table(request))

    def admit(self, prompt: Sequence[int], fork_of: Request | None = None) -> Request:
        request = super().admit(prompt, fork_of)
        assert request.fork_of is fork_of
        return request

    def run(self, scheduled: list[ScheduledRequest]) -> list[int]:
        return [token for tokens in self.carry_out(scheduled) for token in tokens]

    def carry_out(self, scheduled: list[ScheduledRequest]) -> list[list[int]]:
        _, _, copies = self.cache.take_moves()
        border = self.full_blocks.num_blocks
        assert all((here < border) == (there < border) for here, there in copies)
        full = [pair for pair in copies if pair[0] < border]
        others = [(here - border, there - border) for here, there in copies if here >= border]
        drawn = self.full_executor.run(StepPlan(scheduled, [], [], full))
        tables = [
            replace(item, block_table=self.grouped.windowed_table(item.request))
            for item in scheduled
        ]
        assert self.executor.run(StepPlan(tables, [], [], others)) == drawn
        return drawn

    def check(self) -> None:
        """What the cache checks itself, and that every block of both groups is accounted for once."""
        self.cache.check()
        full = {block for one in self.requests for block in self.full_table(one)}
        windowed = {block for one in self.requests for block in self.table(one)} - {self.blank}
        stats, blocks = self.cache.stats(), (self.full_blocks, self.blocks)
        assert stats["used_blocks"] == len(full) + len(windowed)
        assert stats["free_blocks"] == sum(one.num_free for one in blocks)
        total = stats["free_blocks"] + stats["cached_blocks"] + stats["used_blocks"]
        assert total == stats["total_blocks"] == sum(one.num_blocks for one in blocks) - 1
        assert all(self.full_blocks.ref_count(block) for block in full)
        for request in self.requests:
            if request.status is not RequestStatus.RUNNING:
                assert not self.full_table(request)
                assert not self.table(request)
