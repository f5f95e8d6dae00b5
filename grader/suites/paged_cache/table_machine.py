"""Random scripts of admissions and allocations, as a scheduler makes them. Tasks 3.5 and 3.6."""

from collections.abc import Callable
from typing import Any

from hypothesis import reject
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from grader.kit import Machine
from grader.suites.paged_cache.cache_desk import RUNNING, CacheDesk
from grader.suites.paged_cache.cache_view import difference, reason_of
from yaie.core.request import Request, RequestStatus

PREEMPTED, SWAPPED = RequestStatus.PREEMPTED, RequestStatus.SWAPPED
# Two texts that begin alike, so that prompts share some blocks, all, or none.
TEXT = st.sampled_from([[1, 2, 3, 4, 5, 6] * 3, [1, 2, 3, 4, 5, 7] * 3])
LENGTH = st.integers(1, 18)
MOST_RUNNING = 4

AGREE = "Every block is free, cached or in use, once; a table leads each token to its own K and V."
ROOM = "Room is what is free or evictable; a copy and keep_free count too; what is in use does not."


class GivenUp(Exception):
    """Another task's mistake came to light at the end of a run, where Hypothesis takes no `reject`."""


class AdmitMachine(Machine):
    """Requests come, to a tree that others fill. Other machines add rules."""

    grades = frozenset({"3.5"})
    with_host = False

    def __init__(self) -> None:
        super().__init__()
        self.over = False
        self.ending = False

    @initialize(
        num_blocks=st.integers(4, 12),
        size=st.integers(1, 4),
        num_host_blocks=st.sampled_from([4, 12]),
        caching=st.sampled_from([True, True, True, False]),
    )
    def start(self, num_blocks: int, size: int, num_host_blocks: int, caching: bool) -> None:
        hosts = num_host_blocks if self.with_host else 0
        self.desk = CacheDesk(self.part, num_blocks, size, hosts, caching=caching)
        self.size = size

    def claim(self, task: str, got: Any, expected: Any, what: str, why: str = "") -> None:
        if got != expected:
            self.over = True
            self.give_up_unless_graded(task)
        super().claim(task, got, expected, what, why)

    def give_up_unless_graded(self, task: str) -> None:
        """What another task got wrong ends this run, and is no failure of it."""
        if task in self.grades:
            return
        if self.ending:
            raise GivenUp
        reject()

    def call(self, task: str, call: Callable[[], Any]) -> Any:
        """What a call of `task` returns; a run in which that is another task's crash is given up."""
        try:
            return call()
        except NotImplementedError:
            raise  # a stub has a verdict of its own
        except Exception:
            self.over = True
            self.give_up_unless_graded(task)
            raise

    def agree(self, task: str) -> None:
        """Tables, tree and blocks fit together; if not, the call that was just made is to blame."""
        found = self.desk.misfits()
        self.claim(task, found, [], "what does not fit together", reason_of(found) or AGREE)
        for request in self.having(RUNNING):
            wrong = self.desk.wrong_slots(request)
            self.claim(task, wrong, "", "K and V at the wrong place", AGREE)

    def having(self, *statuses: RequestStatus) -> list[Request]:
        return [request for request in self.desk.requests if request.status in statuses]

    def pick(self, data: st.DataObject, *statuses: RequestStatus) -> Request | None:
        choices = self.having(*statuses)
        return data.draw(st.sampled_from(choices)) if choices else None

    def cached(self, request: Request, max_blocks: int) -> list[int]:
        tree = self.desk.tree
        return tree.peek(request.token_ids, max_blocks) if tree is not None else []

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.size)

    @rule(text=TEXT, length=LENGTH)
    def file(self, text: list[int], length: int) -> None:
        """An earlier request leaves a prefix."""
        fits = length // self.size <= self.desk.blocks.num_free
        if self.desk.tree is not None and fits:
            self.desk.file(text[:length])

    @rule(num_blocks=st.integers(1, 4))
    def evict(self, num_blocks: int) -> None:
        """Others take what no request has locked."""
        if self.desk.tree is not None and self.desk.tree.num_evictable:
            self.desk.evict(num_blocks)
            self.agree("3.5")

    @rule(text=TEXT, length=LENGTH)
    def admit(self, text: list[int], length: int) -> None:
        if len(self.having(RUNNING)) < MOST_RUNNING:
            self.start_table(self.desk.request(text[:length]))

    def start_table(self, request: Request) -> None:
        """Admit, and compare with what the tree had."""
        found = self.cached(request, (request.num_tokens - 1) // self.size)
        first_time = request.num_preemptions == 0
        before = request.num_cached_tokens
        got = self.call("3.5", lambda: self.desk.cache.admit(request))
        request.status = RUNNING
        count = len(found) * self.size
        self.claim("3.5", got, count, "what admit returned")
        self.claim("3.5", request.num_computed_tokens, count, "num_computed_tokens")
        cached = count if first_time else before
        self.claim("3.5", request.num_cached_tokens, cached, "num_cached_tokens")
        self.claim("3.5", self.desk.table(request), found, "the table after admit")
        self.agree("3.5")


class TableMachine(AdmitMachine):
    """And they grow, at the cost of what is cached."""

    grades = frozenset({"3.6"})

    @rule(data=st.data(), num_tokens=st.integers(1, 20), keep_free=st.integers(0, 6))
    def allocate(self, data: st.DataObject, num_tokens: int, keep_free: int) -> None:
        """True exactly if the new blocks and the reserve fit into what is free or evictable."""
        request = self.pick(data, RUNNING)
        if request is not None:
            self.make_room(request, request.num_computed_tokens + num_tokens, keep_free)

    def make_room(self, request: Request, num_tokens: int, keep_free: int = 0) -> bool:
        desk, table = self.desk, self.desk.table(request)
        writes_to = request.num_computed_tokens // self.size
        copied = writes_to < len(table) and desk.blocks.ref_count(table[writes_to]) > 1
        wanted = max(0, self.blocks_for(num_tokens) - len(table)) + copied
        keep_free = keep_free if wanted else 0
        free, cached = desk.blocks.num_free, desk.tree.num_blocks if desk.tree else 0
        evictable = desk.tree.num_evictable if desk.tree else 0
        fits = wanted + keep_free <= free + evictable
        before = desk.holdings()
        got = self.call(
            "3.6", lambda: desk.cache.allocate(request, num_tokens, keep_free=keep_free)
        )
        self.claim("3.6", got, fits, f"what allocate returned, {wanted} more blocks needed", ROOM)
        if not fits:
            was, now = difference(before, desk.holdings())
            self.claim("3.6", now, was, "what has changed after allocate said no", ROOM)
            return False
        lost = cached - (desk.tree.num_blocks if desk.tree else 0)
        self.claim("3.6", lost, max(0, wanted - free), "how many cached blocks were evicted", ROOM)
        blocks = max(self.blocks_for(num_tokens), len(table))
        self.claim("3.6", len(desk.table(request)), blocks, "how many blocks the table has")
        copies = len(desk.carry_out()[2])
        self.claim("3.6", copies, int(copied), "how many blocks are to be copied")
        self.agree("3.6")
        return True

    @rule(data=st.data(), most=st.integers(1, 8))
    def compute(self, data: st.DataObject, most: int) -> None:
        request = self.pick(data, RUNNING)
        if request is not None and not request.num_in_flight:
            self.advance(request, most)

    def advance(self, request: Request, most: int) -> bool:
        """Compute up to `most` of its tokens; False without room."""
        num_tokens = min(most, request.num_tokens - request.num_computed_tokens)
        if not self.make_room(request, request.num_computed_tokens + num_tokens):
            return False
        self.desk.write(request, num_tokens)
        self.agree("3.6")
        return True


class RoomMachine(TableMachine):
    """And others read the blocks that requests write to."""

    @rule(data=st.data())
    def read_along(self, data: st.DataObject) -> None:
        """The block that is written to next: only there may another one find what stands there."""
        request = self.pick(data, RUNNING)
        if request is not None:
            table, writes_to = self.desk.table(request), request.num_computed_tokens // self.size
            if writes_to < len(table):
                self.desk.read_along(table[writes_to])

    @rule()
    def stop_reading(self) -> None:
        if self.desk.readers:
            self.desk.stop_reading()
