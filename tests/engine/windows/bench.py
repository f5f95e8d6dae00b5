"""A WindowedCache driven by hand, and a naive model that keeps lists of what was filed."""

from collections.abc import Sequence
from typing import Any, cast

from grader.kit.toy_model import ToyExecutor
from solutions.paged_cache import BlockManager
from solutions.radix_tree import RadixTree
from tests.solutions.cache_bench import CacheBench
from yaie.core.batch import ScheduledRequest, StepPlan
from yaie.core.request import Request
from yaie.engine.windows.cache import WindowedCache
from yaie.worker.windows import Held

LONGEST = 240
CHUNK = 8
"""Tokens of a step."""


class WindowedExecutor(ToyExecutor):
    """Reads back what the tokens of a share see, and nothing before that."""

    def __init__(self, block_size: int, window: int) -> None:
        super().__init__(block_size)
        self.window = window

    def _check_cache(self, item: ScheduledRequest, wanted: list[int]) -> None:
        first = max(0, item.start - self.window + 1)
        held = self.contents(self.slots(item, start=first))
        assert held == wanted[first:], f"{item.request.request_id} from {first}"


class WindowedBench(CacheBench):
    """Plays the scheduler. known: the texts, up to the end of a block, that were filed; filed: those of
    which the block was there."""

    def __init__(
        self, num_blocks: int, block_size: int, window: int, *, prefix_caching: bool = True
    ) -> None:
        self.size, self.window = block_size, window
        most = -(-(window - 1 + CHUNK) // block_size) + 1
        self.held = Held(window, block_size, most, -(-LONGEST // block_size))
        self.blocks = BlockManager(num_blocks, block_size)
        self.tree = RadixTree(block_size) if prefix_caching else None
        self.windowed = WindowedCache(self.blocks, self.tree, self.held)
        self.cache = cast(Any, self.windowed)
        self.executor = WindowedExecutor(block_size, window)
        self.requests: list[Request] = []
        self.in_flight: dict[Request, list[tuple[int, list[int]]]] = {}
        self.last_plan = StepPlan()
        self.filed: set[tuple[int, ...]] = set()
        self.known: set[tuple[int, ...]] = {()}
        (self.blank,) = (block for block in range(num_blocks) if self.blocks.ref_count(block))

    def note_filed(self, request: Request) -> None:
        """Before the request commits: what the tree will have of it."""
        if self.tree is None:
            return
        for index in range(request.num_settled_tokens // self.size):
            text = tuple(request.token_ids[: (index + 1) * self.size])
            self.known.add(text)
            if self.table(request)[index] != self.blank:
                self.filed.add(text)

    def settle(self, request: Request, *, commit: bool = True) -> None:
        super().settle(request, commit=False)
        if commit and request.status == "running":
            self.note_filed(request)
            self.cache.commit(request)

    def leave(self, request: Request, *, keep: bool = True) -> None:
        if keep and self.table(request):
            self.note_filed(request)
        super().leave(request, keep=keep)

    def preempt(self, request: Request) -> None:
        self.note_filed(request)
        super().preempt(request)

    def carry_out(self, scheduled: list[ScheduledRequest]) -> list[list[int]]:
        """The promised moves, then the model: what each share draws."""
        return self.executor.run(StepPlan(scheduled, *self.cache.take_moves()))

    def usable(self, token_ids: Sequence[int]) -> int:
        """How many leading tokens a text may go on behind, if no block has been given up: those of the
        most blocks whose last ones, which the next token sees, were all filed."""
        for count in range((len(token_ids) - 1) // self.size, 0, -1):
            end = count * self.size
            first = max(0, end - self.window + 1) // self.size
            seen = (tuple(token_ids[: (k + 1) * self.size]) for k in range(first, count))
            if tuple(token_ids[:end]) in self.known and all(text in self.filed for text in seen):
                return end
        return 0

    def verify(self, request: Request, drafts: list[int]) -> bool:
        """A step of one token and drafts, of which the first wrong one and those behind it are taken
        back; False without room."""
        start = request.num_computed_tokens
        assert start == request.num_tokens - 1
        if not self.cache.allocate(request, start + 1 + len(drafts)):
            return False
        table, count = self.cache.block_table(request), 1 + len(drafts)
        item = ScheduledRequest(request, start, count, table, True, drafts)
        (drawn,) = self.carry_out([item])
        request.num_computed_tokens += count
        request.num_in_flight += count
        request.num_output_placeholders += count
        self.check()
        request.num_in_flight -= count
        request.num_output_placeholders -= count
        request.token_ids += drawn
        request.num_computed_tokens -= count - len(drawn)
        return True

    def check(self) -> None:
        """What the cache checks itself, that every block is accounted for once, and that no table keeps
        more than what is seen and what goes back together."""
        self.cache.check()
        stats = self.cache.stats()
        held = {block for request in self.requests for block in self.table(request)} - {self.blank}
        assert stats["used_blocks"] == len(held)
        assert stats["free_blocks"] == self.blocks.num_free
        total = stats["free_blocks"] + stats["cached_blocks"] + stats["used_blocks"]
        assert total == stats["total_blocks"] == self.blocks.num_blocks - 1
        assert self.cache.num_available_blocks == total - stats["used_blocks"]
