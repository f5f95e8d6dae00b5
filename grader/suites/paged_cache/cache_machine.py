"""Random scripts of all that a scheduler may do with a KV cache manager."""

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from grader.kit import quietly
from grader.suites.paged_cache.cache_desk import RUNNING
from grader.suites.paged_cache.cache_view import difference
from grader.suites.paged_cache.table_machine import (
    MOST_RUNNING,
    PREEMPTED,
    ROOM,
    SWAPPED,
    GivenUp,
    TableMachine,
)
from yaie.core.request import Request

UNDONE = "What swap_in locked to see whether it fits is unlocked if not; nothing is evicted before."


class FileMachine(TableMachine):
    """And what is computed is filed; requests end, are preempted, come back, or have siblings."""

    grades = frozenset({"3.8"})

    def __init__(self) -> None:
        super().__init__()
        self.left: set[int] = set()  # blocks of those that have gone

    @rule(data=st.data(), most=st.integers(1, 8))
    def compute_and_commit(self, data: st.DataObject, most: int) -> None:
        request = self.pick(data, RUNNING)
        if request is None or request.num_in_flight:
            return
        if self.advance(request, most):
            self.commit(request)

    @rule(data=st.data(), most=st.integers(1, 8))
    def send(self, data: st.DataObject, most: int) -> None:
        """A step goes off, perhaps after others of the request whose results have not come."""
        request = self.pick(data, RUNNING)
        known = len(request.token_ids) - request.num_computed_tokens if request else 0
        if request is None or not known:
            return
        num_tokens = min(most, known)
        if self.make_room(request, request.num_computed_tokens + num_tokens):
            self.desk.send(request, num_tokens)
            self.agree("3.6")

    @rule(data=st.data())
    def result(self, data: st.DataObject) -> None:
        flying = [request for request in self.desk.requests if request.num_in_flight]
        if flying:
            request = data.draw(st.sampled_from(flying))
            self.desk.settle(request)
            if request.status is RUNNING:
                self.commit(request)

    def commit(self, request: Request) -> None:
        self.call("3.8", lambda: self.desk.cache.commit(request))
        tree = self.desk.tree
        full = request.num_settled_tokens // self.size if tree else 0
        found, table = self.cached(request, full), self.desk.table(request)
        what = "the tree's blocks for the full blocks that are computed"
        self.claim("3.8", found, table[:full], f"{what}, and the table's")
        early = sorted(set(table[full:]) & set(tree.all_blocks() if tree else []))
        self.claim("3.8", early, [], "blocks filed before the result of their step has come")
        self.agree("3.8")
        self.tree_is_right("3.8")

    def tree_is_right(self, task: str) -> None:
        """Whatever the tree finds for a request's tokens was computed for them."""
        for request in self.desk.requests:
            for i, block in enumerate(self.cached(request, request.num_tokens // self.size)):
                last = (i + 1) * self.size
                held = self.desk.device.get(block * self.size + self.size - 1, ())
                expected = tuple(request.token_ids[:last])
                what = f"what block {block}, filed for these tokens, was computed for"
                self.claim(task, held, expected, what)

    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        sibling = self.pick(data, RUNNING)
        if sibling is None or sibling.fork_of is not None:
            return
        self.commit(sibling)
        prompt = sibling.token_ids[: sibling.num_prompt_tokens]
        fork = self.desk.request(prompt, sibling)
        self.call("3.7", lambda: self.desk.cache.admit(fork))
        fork.status = RUNNING
        # A scheduler either finds room for an admitted request or takes it back.
        if not self.advance(fork, 1):
            self.end(fork, keep=True)

    @rule(data=st.data(), keep=st.booleans())
    def leave(self, data: st.DataObject, keep: bool) -> None:
        request = self.pick(data, RUNNING, PREEMPTED)
        if request is not None:
            self.end(request, keep=keep)

    def end(self, request: Request, *, keep: bool, task: str = "3.8") -> None:
        desk = self.desk
        cached = desk.tree.num_blocks if desk.tree else 0
        files = keep and request.status is RUNNING and desk.tree is not None
        full, most = request.num_settled_tokens // self.size, request.num_tokens // self.size
        known = len(self.cached(request, most))
        self.left.update(desk.table(request))
        self.call(task, lambda: desk.leave(request, keep=keep))
        self.claim(task, desk.table(request), [], "the table after free")
        if files:
            found = len(self.cached(request, most))
            what = "how many of its blocks are cached: those full of tokens with a result"
            self.claim(task, found, max(known, full), what)
        elif desk.tree is not None:
            self.claim(
                task, desk.tree.num_blocks, cached, "how many blocks the tree has after free"
            )
        self.agree(task)
        self.tree_is_right(task)

    @rule(data=st.data())
    def preempt(self, data: st.DataObject) -> None:
        if request := self.pick(data, RUNNING):
            self.left.update(self.desk.table(request))
            self.call("3.8", lambda: self.desk.preempt(request))
            self.agree("3.8")

    @rule(data=st.data())
    def readmit(self, data: st.DataObject) -> None:
        request = self.pick(data, PREEMPTED)
        if request is None or request.num_in_flight:
            return  # a scheduler waits for that step's token
        if len(self.having(RUNNING)) < MOST_RUNNING:
            self.start_table(request)

    def teardown(self) -> None:
        """Once all have left, no block is used, and evicting everything returns them all."""
        if self.over or not hasattr(self, "desk"):
            return
        self.ending = True
        try:
            self.all_leave()
        except GivenUp:
            pass

    def all_leave(self) -> None:
        for request in self.having(RUNNING, SWAPPED):
            self.end(request, keep=True, task="3.8" if request.status is RUNNING else "3.10")
        cache, blocks = quietly(self.desk.cache), self.desk.blocks
        self.claim("3.8", cache.stats()["used_blocks"], 0, "used blocks once all have left")
        self.call("3.6", cache.reset_prefix_cache)
        free, hosts = blocks.num_free, blocks.num_free_host
        self.claim("3.6", free, blocks.num_blocks, "free blocks once all is evicted")
        self.claim("3.10", hosts, blocks.num_host_blocks, "free host blocks once all have left")


class SwapMachine(FileMachine):
    """And tables move to the host and back."""

    grades = frozenset({"3.10"})
    with_host = True

    def agree(self, task: str) -> None:
        """A lock that outlived its request may show only when another gives up the same blocks."""
        if task == "3.10" and self.left and self.desk.misfits():
            task = "3.8"
        super().agree(task)

    @rule(data=st.data())
    def swap_out(self, data: st.DataObject) -> None:
        request = self.pick(data, RUNNING)
        if request is None or request.num_computed_tokens == 0:
            return
        self.commit(request)
        desk, table, before = self.desk, self.desk.table(request), self.desk.holdings()
        fits = len(table) <= desk.blocks.num_free_host
        got = self.call("3.10", lambda: desk.cache.swap_out(request))
        self.claim("3.10", got, fits, f"what swap_out returned for {len(table)} blocks")
        moved = [device for device, _ in desk.carry_out()[0]]
        self.claim("3.10", moved, table if fits else [], "the device blocks that are to be copied")
        if fits:
            request.status = SWAPPED
            request.num_preemptions += 1
            self.claim("3.10", desk.table(request), [], "the table after swap_out")
        else:
            was, now = difference(before, desk.holdings())
            self.claim("3.10", now, was, "what has changed after swap_out said no")
        self.agree("3.10")

    @precondition(lambda self: self.having(SWAPPED))
    @rule(data=st.data(), most=st.integers(1, 4), keep_free=st.integers(0, 3))
    def swap_in(self, data: st.DataObject, most: int, keep_free: int) -> None:
        request = self.pick(data, SWAPPED)
        assert request is not None
        if request.num_in_flight:
            return  # as above
        desk, computed = self.desk, request.num_computed_tokens
        num_tokens = computed + min(most, request.num_tokens - computed)
        on_host = desk.blocks.num_swapped_blocks(request.request_id)
        if on_host > self.blocks_for(num_tokens):
            return  # a scheduler brings a table back whole
        found = self.cached(request, computed // self.size)
        wanted = self.blocks_for(num_tokens) - len(found)
        keep_free = keep_free if wanted else 0
        fits = wanted + keep_free <= self.room_beside(found)
        evicts = wanted > desk.blocks.num_free
        before = desk.holdings()
        got = self.call(
            "3.10", lambda: desk.cache.swap_in(request, num_tokens, keep_free=keep_free)
        )
        self.claim("3.10", got, fits, f"what swap_in returned, {wanted} more blocks needed", ROOM)
        if not fits:
            was, now = difference(before, desk.holdings())
            self.claim("3.10", now, was, "what has changed after swap_in said no", UNDONE)
            return
        copied = len(desk.carry_out()[1])
        what = "how many blocks are to be copied: those that the tree has lost"
        self.claim("3.10", copied, on_host - len(found), what)
        request.status = RUNNING
        blocks = self.blocks_for(num_tokens)
        self.claim("3.10", len(desk.table(request)), blocks, "how many blocks the table has")
        self.agree("3.6" if evicts else "3.10")  # eviction is task 3.6's matter

    def room_beside(self, found: list[int]) -> int:
        """Blocks that are free or evictable once `found` is locked."""
        desk = self.desk
        evictable = desk.tree.num_evictable if desk.tree else 0
        in_tables = {block for request in desk.requests for block in desk.table(request)}
        return desk.blocks.num_free + evictable - sum(block not in in_tables for block in found)

    @rule(data=st.data(), keep=st.booleans())
    def leave_the_host(self, data: st.DataObject, keep: bool) -> None:
        if request := self.pick(data, SWAPPED):
            self.end(request, keep=keep, task="3.10")
