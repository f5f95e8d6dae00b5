"""A KVCacheManager driven by hand, with the toy model behind it to see that every slot is right."""

from collections.abc import Sequence

from grader.kit.toy_model import ToyExecutor
from solutions.paged_cache import BlockManager, KVCacheManager
from solutions.radix_tree import RadixTree
from yaie.core.batch import ScheduledRequest, StepPlan
from yaie.core.params import SamplingParams
from yaie.core.request import Request, RequestStatus


class CacheBench:
    """Plays the scheduler for one request at a time."""

    def __init__(
        self,
        num_blocks: int = 8,
        block_size: int = 4,
        num_host_blocks: int = 0,
        *,
        prefix_caching: bool = True,
    ) -> None:
        self.size = block_size
        self.blocks = BlockManager(num_blocks, block_size, num_host_blocks)
        self.tree = RadixTree(block_size) if prefix_caching else None
        self.cache = KVCacheManager(self.blocks, self.tree)
        self.executor = ToyExecutor(block_size)
        self.requests: list[Request] = []
        self.in_flight: dict[
            Request, list[tuple[int, list[int]]]
        ] = {}  # tokens, and what they draw
        self.last_plan = StepPlan()

    def request(self, prompt: Sequence[int], fork_of: Request | None = None) -> Request:
        """A request that waits; it has a seed of its own."""
        index = len(self.requests)
        request = Request(
            f"r{index}", list(prompt), SamplingParams(), seed=index, arrival=index, fork_of=fork_of
        )
        self.requests.append(request)
        return request

    def admit(self, prompt: Sequence[int], fork_of: Request | None = None) -> Request:
        """A request with a table, that has computed nothing yet."""
        request = self.request(prompt, fork_of)
        self.readmit(request)
        return request

    def readmit(self, request: Request) -> None:
        self.cache.admit(request)
        request.status = RequestStatus.RUNNING

    def compute(
        self, request: Request, num_tokens: int | None = None, *, commit: bool = True
    ) -> bool:
        """Compute the next tokens (all, if not told) and commit; False if there is no room."""
        if not self.launch(request, num_tokens):
            return False
        self.settle(request, commit=commit)
        return True

    def launch(self, request: Request, num_tokens: int | None = None) -> bool:
        """Send off a step that computes the next tokens (all, if not told); False without room."""
        start = request.num_computed_tokens
        num_tokens = num_tokens or request.num_tokens - start
        if not self.cache.allocate(request, start + num_tokens):
            return False
        self._send(request, num_tokens)
        return True

    def _send(self, request: Request, num_tokens: int) -> None:
        start, table = request.num_computed_tokens, self.cache.block_table(request)
        samples = start + num_tokens == request.num_tokens
        drawn = self.run([ScheduledRequest(request, start, num_tokens, table, samples)])
        request.num_computed_tokens += num_tokens
        request.num_in_flight += num_tokens
        request.num_output_placeholders += samples
        self.in_flight.setdefault(request, []).append((num_tokens, drawn))

    def settle(self, request: Request, *, commit: bool = True) -> None:
        """The result of the request's earliest step in flight has come."""
        num_tokens, drawn = self.in_flight[request].pop(0)
        request.num_in_flight -= num_tokens
        request.num_output_placeholders -= len(drawn)
        request.token_ids += drawn
        if commit and request.status is RequestStatus.RUNNING:
            self.cache.commit(request)

    def run(self, scheduled: list[ScheduledRequest]) -> list[int]:
        """Carry out the promised moves, then the model."""
        swap_out, swap_in, copies = self.cache.take_moves()
        self.last_plan = StepPlan(scheduled, swap_out, swap_in, copies)
        return [token for tokens in self.executor.run(self.last_plan) for token in tokens]

    def contents(self, request: Request) -> list[int | None]:
        """What stands where the table leads, for each computed token."""
        table, size = self.table(request), self.size
        computed = range(request.num_computed_tokens)
        return self.executor.contents([table[i // size] * size + i % size for i in computed])

    def serve(self, prompt: Sequence[int]) -> Request:
        """Compute a prompt whole and leave its blocks in the cache."""
        request = self.admit(prompt)
        assert self.compute(request)
        self.leave(request)
        return request

    def leave(self, request: Request, *, keep: bool = True) -> None:
        self.cache.free(request, keep=keep)
        request.status = RequestStatus.FINISHED

    def preempt(self, request: Request) -> None:
        """By recomputation: its blocks go, its tokens stay."""
        self.cache.free(request)
        request.num_computed_tokens = 0
        request.num_preemptions += 1
        request.status = RequestStatus.PREEMPTED

    def swap_out(self, request: Request) -> bool:
        if not self.cache.swap_out(request):
            return False
        self.run([])
        request.num_preemptions += 1
        request.status = RequestStatus.SWAPPED
        return True

    def swap_in(self, request: Request, num_tokens: int = 1) -> bool:
        """Back with room for `num_tokens` more, and compute them."""
        if not self.cache.swap_in(request, request.num_computed_tokens + num_tokens):
            return False
        request.status = RequestStatus.RUNNING
        self._send(request, num_tokens)
        self.settle(request)
        return True

    def table(self, request: Request) -> list[int]:
        return list(self.cache.block_table(request))

    def check(self) -> None:
        """What the manager checks itself, and that every block is accounted for once."""
        self.cache.check()
        stats = self.cache.stats()
        in_tables = {block for request in self.requests for block in self.table(request)}
        assert stats["used_blocks"] == len(in_tables)
        assert stats["free_blocks"] == self.blocks.num_free
        total = stats["free_blocks"] + stats["cached_blocks"] + stats["used_blocks"]
        assert total == stats["total_blocks"] == self.blocks.num_blocks
        assert all(self.blocks.ref_count(block) > 0 for block in in_tables)
