"""A KV cache manager driven by hand, on the reference's block manager and radix tree.

The desk plays the scheduler, and the model too: what a slot holds is the tokens up to the one whose K
and V were written there, since those depend on all that came before.
"""

from collections.abc import Sequence
from types import ModuleType
from typing import Any

from grader.kit import expect_equal, note, start_script, watch
from grader.kit.script import current_script
from solutions.paged_cache import BlockManager
from solutions.radix_tree import RadixTree
from yaie.core.errors import InvariantError
from yaie.core.params import SamplingParams
from yaie.core.request import Request, RequestStatus

RUNNING, FINISHED = RequestStatus.RUNNING, RequestStatus.FINISHED
SAMPLED = 50
"""Generated tokens start here, and each request has its own: r0 says 50, 51, ..., r1 100, 101, ..."""

Prefix = tuple[int, ...]


class CacheDesk:
    """cache: the watched manager. blocks, tree: below it; a test may look at both.

    Each begins a script of its own, so that a failure shows the calls on this cache alone.
    """

    def __init__(
        self,
        part: ModuleType,
        num_blocks: int = 8,
        size: int = 4,
        num_host_blocks: int = 0,
        *,
        caching: bool = True,
    ) -> None:
        start_script()
        self.size = size
        self.blocks = BlockManager(num_blocks, size, num_host_blocks)
        self.tree: RadixTree | None = RadixTree(size) if caching else None
        tree = f"RadixTree({size})" if caching else "None"
        note(f"blocks = BlockManager({num_blocks}, {size}, {num_host_blocks})")
        note(f"cache = KVCacheManager(blocks, {tree})")
        self.cache = self.watched(part.KVCacheManager(self.blocks, self.tree))
        self.requests: list[Request] = []
        self.in_flight: dict[Request, list[int]] = {}  # the tokens of each step without a result
        self.device: dict[int, Prefix] = {}
        self.host: dict[int, Prefix] = {}
        self.num_filed = 0

    def watched(self, manager: Any) -> Any:
        return watch(manager, "cache", lambda _: self.state())

    def file(self, token_ids: Sequence[int]) -> list[int]:
        """Have the whole blocks of these tokens cached, as an earlier request left them."""
        assert self.tree is not None
        key, count = f"earlier{self.num_filed}", len(token_ids) // self.size
        if not count:
            return []
        self.num_filed += 1
        table = self.blocks.allocate(key, count)
        existing, node = self.tree.insert(list(token_ids), table)
        self.blocks.hold(table[existing:])
        self.blocks.free(key)
        path = self.tree.path_blocks(node)
        for i, block in enumerate(path):
            for row in range(self.size):
                self.device[block * self.size + row] = tuple(token_ids[: i * self.size + row + 1])
        self.note_change(f"the tree has {list(token_ids)[: count * self.size]} in blocks {path}")
        return path

    def evict(self, num_blocks: int) -> None:
        """Have the least recently used cached blocks gone."""
        assert self.tree is not None
        evicted = self.tree.evict(num_blocks)
        self.blocks.release(evicted)
        self.note_change(f"the tree has lost blocks {evicted}")

    def note_change(self, what: str) -> None:
        """Write down what happened between two calls: the state before the next one is this one."""
        note(f"# {what}")
        current_script().after = self.state()

    def request(
        self, prompt: Sequence[int], fork_of: Request | None = None, *, may_reuse: bool = True
    ) -> Request:
        """A request that waits. may_reuse: its `may_reuse_prefix`."""
        name = f"r{len(self.requests)}"
        params = SamplingParams(prompt_logprobs=None if may_reuse else 0)
        request = Request(name, list(prompt), params, fork_of=fork_of)
        self.requests.append(request)
        fork = f", fork_of={fork_of.request_id}" if fork_of else ""
        alone = "" if may_reuse else ", SamplingParams(prompt_logprobs=0)"
        note(f"{name} = Request({list(prompt)}{alone}{fork})")
        return request

    def admit(
        self, prompt: Sequence[int], fork_of: Request | None = None, *, may_reuse: bool = True
    ) -> Request:
        """A request with a table, that has computed nothing itself yet."""
        request = self.request(prompt, fork_of, may_reuse=may_reuse)
        self.cache.admit(request)
        request.status = RUNNING
        return request

    def compute(
        self, request: Request, num_tokens: int | None = None, *, commit: bool = False
    ) -> bool:
        """Compute the next tokens, all if not told, in a step of their own; False without room."""
        start = request.num_computed_tokens
        num_tokens = num_tokens or request.num_tokens - start
        if not self.cache.allocate(request, start + num_tokens):
            return False
        self.write(request, num_tokens)
        if commit:
            self.cache.commit(request)
        return True

    def launch(self, request: Request, num_tokens: int) -> bool:
        """As `compute`, but the result comes with `settle`; False without room."""
        if not self.cache.allocate(request, request.num_computed_tokens + num_tokens):
            return False
        self.send(request, num_tokens)
        return True

    def send(self, request: Request, num_tokens: int) -> None:
        """The next tokens, known ones all, are computed by a step in flight; what it draws is unread."""
        self.carry_out()
        self._fill(request, num_tokens)
        start = request.num_computed_tokens
        self.in_flight.setdefault(request, []).append(num_tokens)
        request.num_computed_tokens += num_tokens
        request.num_in_flight += num_tokens
        request.num_unread = int(request.num_computed_tokens == request.num_tokens)
        name = request.request_id
        last = start + num_tokens - 1
        self.note_change(f"a step computes tokens {start} to {last} of {name}: in flight")

    def settle(self, request: Request, *, commit: bool = False) -> None:
        """The result of its earliest step in flight has come."""
        num_tokens = self.in_flight[request].pop(0)
        request.num_in_flight -= num_tokens
        if request.num_unread and not request.num_in_flight:
            request.num_unread = 0
            self._draw(request)
        self.note_change(f"the result of {num_tokens} tokens of {request.request_id} has come")
        if commit:
            self.cache.commit(request)

    def write(self, request: Request, num_tokens: int) -> None:
        """What the model does: moves, then the K and V of the next tokens, then a token if all are."""
        self.carry_out()
        start = request.num_computed_tokens
        self._fill(request, num_tokens)
        request.num_computed_tokens = start + num_tokens
        if request.num_computed_tokens == request.num_tokens:
            self._draw(request)
        name = request.request_id
        last = start + num_tokens - 1
        self.note_change(f"{name} computes tokens {start} to {last}, has {request.num_tokens}")

    def _fill(self, request: Request, num_tokens: int) -> None:
        """K and V of the next tokens go where the table leads."""
        table, size, start = self.table(request), self.size, request.num_computed_tokens
        for i in range(start, start + num_tokens):
            slot = table[i // size] * size + i % size
            self.device[slot] = tuple(request.token_ids[: i + 1])

    def _draw(self, request: Request) -> None:
        own = SAMPLED * (1 + self.requests.index(request))
        request.token_ids.append(own + request.num_output_tokens)

    def carry_out(self) -> tuple[list, list, list]:
        """Make the moves that the cache promised; returns them."""
        swap_out, swap_in, copies = self.cache.take_moves()
        self._move(self.device, self.host, swap_out)
        self._move(self.host, self.device, swap_in)
        self._move(self.device, self.device, copies)
        return swap_out, swap_in, copies

    def _move(
        self, source: dict[int, Prefix], target: dict[int, Prefix], pairs: list[tuple[int, int]]
    ) -> None:
        size = self.size
        moved = {
            there * size + row: source.get(here * size + row, ())
            for here, there in pairs
            for row in range(size)
        }
        target.update(moved)

    def leave(self, request: Request, *, keep: bool = True) -> None:
        self.cache.free(request, keep=keep)
        request.status = FINISHED

    def preempt(self, request: Request) -> None:
        """By recomputation: its blocks go, its tokens stay."""
        self.cache.free(request)
        request.num_computed_tokens = 0
        request.num_preemptions += 1
        request.status = RequestStatus.PREEMPTED
        self.note_change(f"{request.request_id} was preempted: num_computed_tokens = 0")

    def table(self, request: Request) -> list[int]:
        return list(self.blocks.get_physical_blocks(request.request_id))

    def refs(self, blocks: Sequence[int]) -> list[int]:
        return [self.blocks.ref_count(block) for block in blocks]

    def holdings(self) -> dict[str, Any]:
        """All that a call which fails must leave as it was."""
        return {
            "tables": {r.request_id: table for r in self.requests if (table := self.table(r))},
            "references": {
                b: n for b, n in enumerate(self.refs(range(self.blocks.num_blocks))) if n
            },
            "cached": self.tree.num_blocks if self.tree else 0,
            "evictable": self.tree.num_evictable if self.tree else 0,
            "free on the host": self.blocks.num_free_host,
        }

    def misfits(self) -> list[str]:
        """What does not fit together among tables, tree and references; [] if all is well."""
        found: list[str] = []
        in_tree = set(self.tree.all_blocks()) if self.tree else set()
        in_tables = {block for request in self.requests for block in self.table(request)}
        for block in range(self.blocks.num_blocks):
            known = (block in in_tree) + sum(self.table(r).count(block) for r in self.requests)
            refs = self.blocks.ref_count(block)
            if known and not refs:
                found.append(f"block {block} is in use, and free at once")
            elif refs and not known:
                found.append(f"block {block} leaked: its count is {refs}, but nothing uses it")
            elif refs != known:
                found.append(f"block {block} counts {refs}, but {known} is right: tables and tree")
        idle = len(in_tree - in_tables)
        if self.tree is not None and idle != self.tree.num_evictable:
            found.append(
                f"{idle} of the tree's blocks are in no table, but {self.tree.num_evictable} are "
                "unlocked: the prefix of each table must be locked, and nothing else"
            )
        return found or self.broken_invariants()

    def broken_invariants(self) -> list[str]:
        """What the reference's block manager and tree find wrong with themselves."""
        try:
            self.blocks.check()
            if self.tree is not None:
                self.tree.check()
        except InvariantError as error:
            return [str(error)]
        return []

    def wrong_slots(self, request: Request) -> str:
        """The first computed token whose K and V the table does not lead to; "" if there is none."""
        table = self.table(request)
        for i in range(request.num_computed_tokens):
            if i // self.size >= len(table):
                return f"token {i} of {request.request_id} has no block"
            held = self.device.get(table[i // self.size] * self.size + i % self.size, ())
            if held != tuple(request.token_ids[: i + 1]):
                name, block = request.request_id, table[i // self.size]
                return (
                    f"token {i} of {name}: block {block} holds what was computed for {list(held)}"
                )
        return ""

    def check(self, why: str = "") -> None:
        """Every block accounted for, and every table leading to its tokens' K and V."""
        expect_equal(self.misfits(), [], "what does not fit together", why=why)
        for request in self.requests:
            if request.status is RUNNING:
                expect_equal(self.wrong_slots(request), "", "K and V at the wrong place", why=why)

    def state(self) -> str:
        """For the report: tables, tree, references, host pool, and what does not fit together."""
        lines = []
        for request in self.requests:
            name, on_host = request.request_id, self.blocks.num_swapped_blocks(request.request_id)
            place = f"{on_host} blocks on the host" if on_host else f"table {self.table(request)}"
            done = f"{request.num_computed_tokens} of {request.num_tokens} tokens computed"
            done += f", {request.num_in_flight} in flight" if request.num_in_flight else ""
            lines.append(f"{name} ({request.status.value}): {place}, {done}")
        if self.tree is not None:
            cached = sorted(self.tree.all_blocks())
            lines.append(
                f"in the tree: blocks {cached}, {self.tree.num_evictable} of them evictable"
            )
        refs = enumerate(self.refs(range(self.blocks.num_blocks)))
        counts = ", ".join(f"block {block}: {count}" for block, count in refs if count)
        free = [b for b in range(self.blocks.num_blocks) if self.blocks.ref_count(b) == 0]
        lines.append(f"references: {counts or 'none'}; free: {free}")
        if self.blocks.num_host_blocks:
            lines.append(f"host: {self.blocks.num_free_host} of {self.blocks.num_host_blocks} free")
        return "\n".join([*lines, *(f"! {text}" for text in self.misfits())])
