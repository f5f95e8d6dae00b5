"""KVCacheManager under any sequence of what a scheduler may do, with the toy model looking on."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from grader.kit.toy_model import prefix_hashes
from tests.solutions.cache_bench import CacheBench
from tests.solutions.properties import effort
from yaie.core.request import Request, RequestStatus

RUNNING, PREEMPTED, SWAPPED = (
    RequestStatus.RUNNING,
    RequestStatus.PREEMPTED,
    RequestStatus.SWAPPED,
)
# Two texts that begin alike, so that prompts share some blocks, all, or none.
TEXTS = [[1, 2, 3, 4, 5, 6] * 3, [1, 2, 3, 4, 5, 7] * 3]


class CacheMachine(RuleBasedStateMachine):
    """Requests come, compute, share, move and go; `check` holds after each."""

    @initialize(
        num_blocks=st.integers(4, 12),
        block_size=st.integers(1, 4),
        num_host_blocks=st.sampled_from([0, 4, 12]),
        prefix_caching=st.sampled_from([True, True, False]),
    )
    def start(
        self, num_blocks: int, block_size: int, num_host_blocks: int, prefix_caching: bool
    ) -> None:
        self.bench = CacheBench(
            num_blocks, block_size, num_host_blocks, prefix_caching=prefix_caching
        )

    def having(self, *statuses: RequestStatus) -> list[Request]:
        return [request for request in self.bench.requests if request.status in statuses]

    def pick(self, data: st.DataObject, *statuses: RequestStatus) -> Request | None:
        choices = self.having(*statuses)
        return data.draw(st.sampled_from(choices)) if choices else None

    @rule(text=st.sampled_from(TEXTS), length=st.integers(1, 18))
    def admit(self, text: list[int], length: int) -> None:
        if len(self.having(RUNNING)) == 4:
            return
        request = self.bench.admit(text[:length])
        assert request.num_computed_tokens < request.num_tokens
        assert request.num_computed_tokens % self.bench.size == 0

    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        sibling = self.pick(data, RUNNING)
        if sibling is None or sibling.fork_of is not None:
            return
        self.bench.cache.commit(sibling)
        prompt = sibling.token_ids[: sibling.num_prompt_tokens]
        request = self.bench.admit(prompt, fork_of=sibling)
        # A scheduler either finds room for an admitted request or takes it back.
        if not self.bench.compute(request, 1):
            self.bench.leave(request)

    @rule(data=st.data(), most=st.integers(1, 8), commit=st.booleans())
    def compute(self, data: st.DataObject, most: int, commit: bool) -> None:
        request = self.pick(data, RUNNING)
        if request is None or request.num_in_flight:
            return
        stats, table = self.bench.cache.stats(), self.bench.table(request)
        remaining = request.num_tokens - request.num_computed_tokens
        if not self.bench.compute(request, min(most, remaining), commit=commit):
            assert (self.bench.cache.stats(), self.bench.table(request)) == (stats, table)

    @rule(data=st.data(), most=st.integers(1, 8))
    def launch(self, data: st.DataObject, most: int) -> None:
        """A step whose result comes later; the request may have others in flight."""
        request = self.pick(data, RUNNING)
        if request is not None:
            remaining = request.num_tokens - request.num_computed_tokens
            self.bench.launch(request, min(most, remaining))

    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        flying = [request for request in self.bench.requests if request.num_in_flight]
        if flying:
            request = data.draw(st.sampled_from(flying))
            filed = self.filed(request)
            self.bench.settle(request)
            most = max(filed, request.num_settled_tokens // self.bench.size)
            assert self.filed(request) <= most, "blocks of a step without a result were filed"

    def filed(self, request: Request) -> int:
        """How many blocks of its tokens the tree has."""
        tree, most = self.bench.tree, request.num_tokens // self.bench.size
        return len(tree.peek(request.token_ids, most)) if tree is not None else 0

    @rule(data=st.data(), num_tokens=st.integers(1, 20), keep_free=st.integers(0, 6))
    def allocate_with_reserve(self, data: st.DataObject, num_tokens: int, keep_free: int) -> None:
        """True exactly if the new blocks and the reserve fit into what is free or evictable."""
        request, cache = self.pick(data, RUNNING), self.bench.cache
        if request is None or self.having(SWAPPED):
            return
        size, table = self.bench.size, self.bench.table(request)
        num_tokens = request.num_computed_tokens + num_tokens
        first = request.num_computed_tokens // size
        copied = first < len(table) and self.bench.blocks.ref_count(table[first]) > 1
        wanted = max(0, -(-num_tokens // size) - len(table)) + copied
        available = cache.num_available_blocks
        fits = wanted == 0 or wanted + keep_free <= available
        assert cache.allocate(request, num_tokens, keep_free=keep_free) is fits
        assert cache.num_available_blocks == available - (wanted if fits else 0)

    @rule(data=st.data(), keep=st.booleans())
    def leave(self, data: st.DataObject, keep: bool) -> None:
        request = self.pick(data, RUNNING, SWAPPED, PREEMPTED)
        if request is not None:
            self.bench.leave(request, keep=keep)

    @rule(data=st.data())
    def preempt(self, data: st.DataObject) -> None:
        if request := self.pick(data, RUNNING):
            self.bench.preempt(request)

    @rule(data=st.data())
    def readmit(self, data: st.DataObject) -> None:
        request = self.pick(data, PREEMPTED)
        if request is not None and not request.num_in_flight:
            self.bench.readmit(request)
            assert request.num_computed_tokens < request.num_tokens

    @precondition(lambda self: self.bench.blocks.num_host_blocks)
    @rule(data=st.data())
    def swap_out(self, data: st.DataObject) -> None:
        request = self.pick(data, RUNNING)
        if request is None or request.num_computed_tokens == 0:
            return
        table, room = self.bench.table(request), self.bench.blocks.num_free_host
        assert self.bench.swap_out(request) == (len(table) <= room)

    @precondition(lambda self: self.having(SWAPPED))
    @rule(data=st.data(), most=st.integers(1, 4))
    def swap_in(self, data: st.DataObject, most: int) -> None:
        request = self.pick(data, SWAPPED)
        assert request is not None
        if request.num_in_flight:
            return  # a scheduler waits for that step's token
        stats = self.bench.cache.stats()
        remaining = request.num_tokens - request.num_computed_tokens
        # A table that was allocated ahead comes back whole.
        ahead = self.bench.blocks.num_swapped_blocks(request.request_id) * self.bench.size
        if ahead > request.num_computed_tokens + min(most, remaining):
            return
        if not self.bench.swap_in(request, min(most, remaining)):
            assert self.bench.cache.stats() == stats

    @rule()
    def reset(self) -> None:
        cached = self.bench.cache.stats()["cached_blocks"]
        assert self.bench.cache.reset_prefix_cache() == cached

    @rule(text=st.sampled_from(TEXTS), length=st.integers(1, 18))
    def looking_changes_nothing(self, text: list[int], length: int) -> None:
        cache, request = self.bench.cache, self.bench.request(text[:length])
        before = cache.stats()
        assert cache.cached_tokens(request) <= length - 1
        cache.is_pending(request)
        assert cache.stats() == before
        self.bench.requests.remove(request)

    @invariant()
    def nothing_is_lost_or_held_twice(self) -> None:
        if hasattr(self, "bench"):
            self.bench.check()

    @invariant()
    def every_table_holds_what_was_computed(self) -> None:
        if not hasattr(self, "bench"):
            return
        for request in self.having(RUNNING):
            known = min(request.num_computed_tokens, len(request.token_ids))
            hashes = prefix_hashes(request.token_ids[:known])
            assert self.bench.contents(request)[:known] == hashes

    def teardown(self) -> None:
        """Without requests no block is used, and evicting everything returns them all."""
        if hasattr(self, "bench"):
            for request in self.having(RUNNING, SWAPPED):
                self.bench.leave(request)
            assert self.bench.cache.stats()["used_blocks"] == 0
            for request in list(self.bench.requests):
                late = self.bench.request([*request.token_ids, 0])
                assert not self.bench.cache.is_pending(late), "nobody computes anything any more"
            self.bench.cache.reset_prefix_cache()
            assert self.bench.blocks.num_free == self.bench.blocks.num_blocks
            assert self.bench.blocks.num_free_host == self.bench.blocks.num_host_blocks


TestCacheMachine = CacheMachine.TestCase
TestCacheMachine.settings = effort(60, steps=40)
