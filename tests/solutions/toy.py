"""A model of integers on the real cache and scheduler: wrong or stale K and V show at once.

What a slot holds stands for K and V, which depend on every token before: a hash of the prefix. A step
writes the hashes of its tokens to their slots, then each request reads its whole sequence back through
its block table. A block that was overwritten, freed too early, not copied, or filed under other tokens
gives another hash.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from solutions.paged_cache import BlockManager, KVCacheManager
from solutions.radix_tree import RadixTree
from solutions.scheduler import POLICIES, Scheduler, StaticScheduler
from yaie.core.batch import ScheduledRequest, StepPlan
from yaie.core.params import SamplingParams
from yaie.core.request import FinishReason, Request, RequestStatus

VOCAB = 5
_PRIME = 2**61 - 1


def prefix_hashes(token_ids: Sequence[int]) -> list[int]:
    """A hash for each prefix that ends at a token."""
    hashes, state = [], 1
    for token in token_ids:
        state = (state * 1_000_003 + token + 1) % _PRIME
        hashes.append(state)
    return hashes


def next_token(prefix_hash: int, seed: int) -> int:
    return (prefix_hash * 31 + seed * 7919) % 1009 % VOCAB


def toy_output(prompt: Sequence[int], count: int, seed: int = 0) -> list[int]:
    """The tokens that a right engine generates: no cache, everything from the start each time."""
    token_ids = list(prompt)
    for _ in range(count):
        token_ids.append(next_token(prefix_hashes(token_ids)[-1], seed))
    return token_ids[len(prompt) :]


class ToyRunner:
    """Carries out a plan on dictionaries from slot to prefix hash."""

    def __init__(self, block_size: int) -> None:
        self._size = block_size
        self._device: dict[int, int] = {}
        self._host: dict[int, int] = {}
        self.num_computed = 0

    def run(self, plan: StepPlan) -> list[int]:
        """The next token of each request that samples."""
        self._move(self._device, self._host, plan.swap_out)
        self._move(self._host, self._device, plan.swap_in)
        self._move(self._device, self._device, plan.copies)
        for item in plan.scheduled:
            written = prefix_hashes(item.request.token_ids)[item.start :][: item.num_tokens]
            self._device.update(zip(item.slots, written, strict=True))
        self.num_computed += plan.num_tokens
        writers = Counter(slot for item in plan.scheduled for slot in item.slots)
        assert max(writers.values(), default=1) == 1, "two requests write to one slot"
        last_hashes = [self._read(item) for item in plan.scheduled]
        return [
            next_token(last, item.request.seed)
            for item, last in zip(plan.scheduled, last_hashes, strict=True)
            if item.samples
        ]

    def contents(self, slots: Sequence[int]) -> list[int | None]:
        """What the slots hold."""
        return [self._device.get(slot) for slot in slots]

    def _move(
        self, source: dict[int, int], target: dict[int, int], pairs: list[tuple[int, int]]
    ) -> None:
        moved = {
            there * self._size + row: source.get(here * self._size + row)
            for here, there in pairs
            for row in range(self._size)
        }
        target.update({slot: value for slot, value in moved.items() if value is not None})

    def _read(self, item: ScheduledRequest) -> int:
        """Follow the block table; the hash of the last token that the request has computed now."""
        end = item.start + item.num_tokens
        slots = [
            item.block_table[i // self._size] * self._size + i % self._size for i in range(end)
        ]
        held = self.contents(slots)
        wanted = prefix_hashes(item.request.token_ids[:end])
        wrong = [i for i in range(end) if held[i] != wanted[i]]
        assert not wrong, f"{item.request.request_id} reads wrong K and V at {wrong} of {end}"
        return wanted[-1]


@dataclass
class Settings:
    """A small engine. static: batches that are filled once."""

    num_blocks: int = 16
    block_size: int = 4
    num_host_blocks: int = 0
    max_num_seqs: int = 4
    token_budget: int = 16
    chunked_prefill: bool = True
    watermark: int = 0
    policy: str = "fcfs"
    prefix_caching: bool = True
    static: bool = False


@dataclass
class Toy:
    """Scheduler, cache and toy model in one loop; every invariant is checked after every step."""

    settings: Settings = field(default_factory=Settings)
    requests: list[Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        s = self.settings
        self.blocks = BlockManager(s.num_blocks, s.block_size, s.num_host_blocks)
        self.tree = RadixTree(s.block_size) if s.prefix_caching else None
        self.cache = KVCacheManager(self.blocks, self.tree)
        self.runner = ToyRunner(s.block_size)
        self.scheduler = (StaticScheduler if s.static else Scheduler)(
            self.cache,
            POLICIES[s.policy](self.cache),
            max_num_seqs=s.max_num_seqs,
            token_budget=s.token_budget,
            chunked_prefill=s.chunked_prefill,
            swap=s.num_host_blocks > 0,
            watermark=s.watermark,
        )

    def add(
        self, prompt: Sequence[int], max_tokens: int = 1, *, priority: int = 0, n: int = 1
    ) -> list[Request]:
        """Queue n siblings, each with a seed of its own."""
        siblings: list[Request] = []
        for index in range(n):
            siblings.append(
                Request(
                    f"r{len(self.requests)}",
                    list(prompt),
                    SamplingParams(),
                    seed=index,
                    priority=priority,
                    arrival=len(self.requests),
                    fork_of=siblings[0] if siblings else None,
                    max_tokens=max_tokens,
                )
            )
            self.requests.append(siblings[-1])
            self.scheduler.add(siblings[-1])
        return siblings

    @property
    def alive(self) -> list[Request]:
        return [request for request in self.requests if not request.is_finished]

    def step(self) -> StepPlan:
        """Schedule, run, update, end those that have enough; checks before and after."""
        had_work = bool(self.alive)
        plan = self.scheduler.schedule()
        self.check_plan(plan, had_work)
        tokens = self.runner.run(plan)
        for request in self.scheduler.update(plan, tokens):
            if request.num_output_tokens >= request.max_tokens:
                self.scheduler.finish(request, FinishReason.LENGTH)
        self.check()
        return plan

    def run(self) -> list[list[int]]:
        """Step until nobody is left; returns the outputs in the order of arrival."""
        # The first in rank gains a token in every step, whatever happens to the others.
        most_steps = sum(r.num_prompt_tokens + r.max_tokens + 1 for r in self.alive)
        for _ in range(most_steps):
            if not self.alive:
                break
            self.step()
        assert not self.alive, f"no end after {most_steps} steps"
        return [request.output_token_ids for request in self.requests]

    def check_plan(self, plan: StepPlan, had_work: bool) -> None:
        """A step computes something, within its budget and seats, and each share is what it says."""
        assert not had_work or plan.scheduled or plan.failed, "work exists, but nothing is done"
        requests = [item.request for item in plan.scheduled]
        assert len(set(requests)) == len(requests) <= self.settings.max_num_seqs
        if not self.settings.static:
            assert plan.num_tokens <= self.settings.token_budget
            assert not any(request.is_finished for request in requests)
        size = self.settings.block_size
        for item in plan.scheduled:
            assert item.num_tokens >= 1
            positions = range(item.start, item.start + item.num_tokens)
            assert item.slots == [item.block_table[i // size] * size + i % size for i in positions]
            if not item.request.is_finished:
                assert item.start == item.request.num_computed_tokens
                assert item.samples == (positions.stop == item.request.num_tokens)

    def check(self) -> None:
        """The parts' own checks, and the invariants that span them."""
        self.scheduler.check()
        self.cache.check()
        running = [r for r in self.requests if r.status is RequestStatus.RUNNING]
        assert self.scheduler.num_running == len(running)
        assert self.scheduler.num_waiting == len(self.alive) - len(running)
        stats = self.cache.stats()
        total = stats["free_blocks"] + stats["cached_blocks"] + stats["used_blocks"]
        assert total == stats["total_blocks"] == self.settings.num_blocks
        tables = {block for r in self.requests for block in self.cache.block_table(r)}
        assert stats["used_blocks"] == len(tables)
        assert all(self.blocks.ref_count(block) > 0 for block in tables)
        assert all(r.num_cached_tokens < r.num_prompt_tokens for r in self.requests)
        if not self.alive:
            self.check_empty()

    def check_empty(self) -> None:
        """Nobody is left: no block is used beyond those that the tree keeps, on host or device."""
        assert self.cache.stats()["used_blocks"] == 0
        assert self.blocks.num_free_host == self.settings.num_host_blocks

    def expected(self) -> list[list[int]]:
        return [
            toy_output(r.token_ids[: r.num_prompt_tokens], r.max_tokens, r.seed)
            for r in self.requests
        ]
