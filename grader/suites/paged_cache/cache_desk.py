"""A KV cache manager driven by hand, on the reference's block manager and radix tree.

The desk plays the scheduler, and the model too: what a slot holds is the tokens up to the one whose K
and V were written there, since those depend on all that came before.
"""

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from grader.kit import note, quietly, start_script, watch
from grader.kit.script import current_script, resume_script
from grader.suites.paged_cache.cache_view import CacheView, Prefix
from solutions.paged_cache import BlockManager
from solutions.radix_tree import RadixTree
from yaie.core.params import SamplingParams
from yaie.core.request import Request, RequestStatus

RUNNING, FINISHED = RequestStatus.RUNNING, RequestStatus.FINISHED
REUSES, REUSES_NOTHING = SamplingParams(), SamplingParams(prompt_logprobs=0)
SAMPLED = 50
"""Generated tokens start here, and each request has its own: r0 says 50, 51, ..., r1 100, 101, ..."""


class CacheDesk(CacheView):
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
        self.readers: dict[
            str, list[Prefix]
        ] = {}  # other tables, and what they found in their block
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

    def read_along(self, block: int) -> None:
        """Another holder has this block in its table: it must find there what stands there now."""
        reader = f"reader{len(self.readers)}"
        self.blocks.share(reader, [block])
        self.readers[reader] = self.content(block)
        self.note_change(f"{reader}, another table, has block {block} too")

    def stop_reading(self) -> None:
        """The newest of those holders has gone."""
        reader, _ = self.readers.popitem()
        self.blocks.free(reader)
        self.note_change(f"{reader} is gone")

    def evict(self, num_blocks: int) -> None:
        """Have the least recently used cached blocks gone."""
        assert self.tree is not None
        evicted = self.tree.evict(num_blocks)
        self.blocks.release(evicted)
        self.note_change(f"the tree has lost blocks {evicted}")

    def note_change(self, what: str) -> None:
        """Write down what happened between two calls."""
        note(f"# {what}")
        current_script().changed(self.state)

    def request(
        self, prompt: Sequence[int], fork_of: Request | None = None, *, may_reuse: bool = True
    ) -> Request:
        """A request that waits. may_reuse: its `may_reuse_prefix`."""
        name = f"r{len(self.requests)}"
        params = REUSES if may_reuse else REUSES_NOTHING
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
        request.num_output_placeholders = int(request.num_computed_tokens == request.num_tokens)
        name = request.request_id
        self.note_change(f"a step computes {_span(start, num_tokens)} of {name}: in flight")

    def settle(self, request: Request, *, commit: bool = False) -> None:
        """The result of its earliest step in flight has come."""
        num_tokens = self.in_flight[request].pop(0)
        request.num_in_flight -= num_tokens
        if request.num_output_placeholders and not request.num_in_flight:
            request.num_output_placeholders = 0
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
        self.note_change(f"{name} computes {_span(start, num_tokens)}, has {request.num_tokens}")

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
        """Make the moves that the cache promised; returns them. Most steps have none, and no line."""
        swap_out, swap_in, copies = moves = quietly(self.cache).take_moves()
        if any(moves):
            note(f"cache.take_moves()  # -> {moves}")
            current_script().changed(self.state)
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


def _span(start: int, num_tokens: int) -> str:
    last = start + num_tokens - 1
    return f"token {start}" if num_tokens == 1 else f"tokens {start} to {last}"


def moved_by_hand_or_by_itself(check: Callable[..., None]) -> None:
    """check(by_itself=False): with a table that the test brings to the host. A cache that remembers
    by itself who has a table passes with one that its own `swap_out` brought there."""
    try:
        check(by_itself=False)
    except Exception:
        script = current_script()
        script.settle()
        start_script()
        try:
            check(by_itself=True)
        except Exception:  # noqa: BLE001, a part may raise anything
            resume_script(script)
        else:
            return
        raise
