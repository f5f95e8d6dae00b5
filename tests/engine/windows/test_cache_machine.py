"""WindowedCache under any sequence of what a scheduler may do, with the naive lists looking on."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from grader.kit.toy_model import prefix_hashes
from tests.engine.windows.bench import CHUNK, WindowedBench
from tests.solutions.properties import effort
from yaie.core.request import Request, RequestStatus

RUNNING, PREEMPTED = RequestStatus.RUNNING, RequestStatus.PREEMPTED
TEXTS = [[1, 2, 3, 4, 0, 1] * 6, [1, 2, 3, 4, 0, 2] * 6]
"""They begin alike: prompts share some blocks, all, or none."""


class WindowMachine(RuleBasedStateMachine):
    """Requests come, compute, draft, fork and go; `check` holds after each."""

    @initialize(
        num_blocks=st.integers(6, 20),
        block_size=st.integers(1, 4),
        window=st.integers(1, 11),
        prefix_caching=st.sampled_from([True, True, False]),
    )
    def start(self, num_blocks: int, block_size: int, window: int, prefix_caching: bool) -> None:
        self.bench = WindowedBench(num_blocks, block_size, window, prefix_caching=prefix_caching)
        self.was_reset = False

    def pick(self, data: st.DataObject, status: RequestStatus) -> Request | None:
        choices = [one for one in self.bench.requests if one.status is status]
        return data.draw(st.sampled_from(choices)) if choices else None

    @rule(text=st.sampled_from(TEXTS), length=st.integers(1, 36))
    def admit(self, text: list[int], length: int) -> None:
        if sum(one.status is RUNNING for one in self.bench.requests) == 4:
            return
        request = self.bench.admit(text[:length])
        assert request.num_computed_tokens < request.num_tokens
        assert request.num_computed_tokens % self.bench.size == 0

    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        sibling = self.pick(data, RUNNING)
        if sibling is None or sibling.fork_of is not None or not sibling.has_settled_prompt:
            return
        prompt = sibling.token_ids[: sibling.num_prompt_tokens]
        request = self.bench.admit(prompt, fork_of=sibling)
        if not self.bench.compute(request, 1):
            self.bench.leave(request)

    @rule(data=st.data(), most=st.integers(1, CHUNK), commit=st.booleans())
    def compute(self, data: st.DataObject, most: int, commit: bool) -> None:
        request = self.pick(data, RUNNING)
        if request is None or request.num_in_flight:
            return
        stats, table = self.bench.cache.stats(), self.bench.table(request)
        remaining = request.num_tokens - request.num_computed_tokens
        if not self.bench.compute(request, min(most, remaining), commit=commit):
            assert (self.bench.cache.stats(), self.bench.table(request)) == (stats, table)

    @rule(data=st.data(), most=st.integers(1, CHUNK))
    def launch(self, data: st.DataObject, most: int) -> None:
        """A step whose result comes later; the request may have others in flight."""
        request = self.pick(data, RUNNING)
        if request is not None and request.num_output_placeholders < 2:
            remaining = request.num_tokens - request.num_computed_tokens
            self.bench.launch(request, min(most, remaining))

    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        flying = [one for one in self.bench.requests if one.num_in_flight]
        if flying:
            self.bench.settle(data.draw(st.sampled_from(flying)))

    @rule(data=st.data(), drafts=st.lists(st.integers(0, 4), min_size=1, max_size=6))
    def verify(self, data: st.DataObject, drafts: list[int]) -> None:
        request = self.pick(data, RUNNING)
        if request is None or request.num_in_flight:
            return
        if request.num_computed_tokens == request.num_tokens - 1:
            self.bench.verify(request, drafts)

    @rule(data=st.data(), num_tokens=st.integers(1, 40), keep_free=st.integers(0, 12))
    def allocate_with_reserve(self, data: st.DataObject, num_tokens: int, keep_free: int) -> None:
        """Never refused where the new blocks and all of the reserve are free, nor granted where the new
        blocks and what the window lets go are not."""
        request, cache = self.pick(data, RUNNING), self.bench.cache
        if request is None:
            return
        size, table = self.bench.size, self.bench.table(request)
        num_tokens = request.num_computed_tokens + num_tokens
        first = request.num_computed_tokens // size
        copied = first < len(table) and self.bench.blocks.ref_count(table[first]) > 1
        wanted = max(0, -(-num_tokens // size) - len(table)) + copied
        available = cache.num_available_blocks
        given_back = cache.stats()["given_back_blocks"]
        fits = cache.allocate(request, num_tokens, keep_free=keep_free)
        given_back = cache.stats()["given_back_blocks"] - given_back
        assert fits or (wanted and wanted + keep_free > available and not given_back)
        assert available - (wanted if fits else 0) <= cache.num_available_blocks
        assert cache.num_available_blocks <= available - (wanted - copied) * fits + given_back

    @rule(data=st.data(), keep=st.booleans())
    def leave(self, data: st.DataObject, keep: bool) -> None:
        request = self.pick(data, data.draw(st.sampled_from([RUNNING, PREEMPTED])))
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

    @rule()
    def reset(self) -> None:
        cached = self.bench.cache.stats()["cached_blocks"]
        assert self.bench.cache.reset_prefix_cache() == cached
        self.was_reset = True

    @rule(text=st.sampled_from(TEXTS), length=st.integers(1, 36))
    def what_is_found_is_what_the_lists_have(self, text: list[int], length: int) -> None:
        """All of it, as long as no block was given up; and looking changes nothing."""
        cache, request = self.bench.cache, self.bench.request(text[:length])
        before = cache.stats()
        found, wanted = cache.cached_tokens(request), self.bench.usable(text[:length])
        assert found <= wanted
        assert found == wanted or before["evicted_blocks"] or self.was_reset
        cache.is_pending(request)
        assert cache.stats() == before
        self.bench.requests.remove(request)

    @invariant()
    def nothing_is_lost_or_held_twice(self) -> None:
        if hasattr(self, "bench"):
            self.bench.check()

    @invariant()
    def every_table_holds_what_the_next_token_sees(self) -> None:
        if not hasattr(self, "bench"):
            return
        for request in self.bench.requests:
            if request.status is not RUNNING:
                continue
            known = min(request.num_computed_tokens, len(request.token_ids))
            first = max(0, request.num_settled_tokens - self.bench.window + 1)
            seen = self.bench.contents(request)[first:known]
            assert seen == prefix_hashes(request.token_ids[:known])[first:]

    def teardown(self) -> None:
        """Without requests no block is used, and evicting everything returns them all."""
        if hasattr(self, "bench"):
            for request in self.bench.requests:
                if request.status is RUNNING:
                    self.bench.leave(request)
            assert self.bench.cache.stats()["used_blocks"] == 0
            for request in list(self.bench.requests):
                late = self.bench.request([*request.token_ids, 0])
                assert not self.bench.cache.is_pending(late), "nobody computes anything any more"
            self.bench.cache.reset_prefix_cache()
            assert self.bench.blocks.num_free == self.bench.blocks.num_blocks - 1


TestWindowMachine = WindowMachine.TestCase
TestWindowMachine.settings = effort(80, steps=40)
