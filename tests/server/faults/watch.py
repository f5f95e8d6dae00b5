"""Looks at the engine after every step, holds it where a test wants it, and says whether it is well.

The eight invariants are those of blocks and tree: `check_blocks` counts them from the tables and the
tree themselves, not from the figures that the manager keeps; `LLMEngine.check` goes deeper.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from tests.server.conftest import LiveServer, within
from yaie.core.request import Request

PATIENCE = 20
SOON = 4
"""Seconds. The server promises one; the tests of other workers may hold the machine meanwhile."""
PROBE = {"prompt": list(range(100, 140)), "max_tokens": 8, "temperature": 0, "ignore_eos": True}


class Watch:
    """Stands between the background thread and its engine, from a moment when that is idle.

    violations: what did not hold. num_tasks: coroutines of a server without clients.
    """

    def __init__(self, server: LiveServer) -> None:
        self.violations: list[str] = []
        self.num_tasks = num_tasks(server)
        self._llm = llm = server.llm
        self._go = threading.Event()
        self._go.set()
        self._held = threading.Event()
        self._until: Callable[[], bool] | None = None
        self._step, llm.step = llm.step, self._watched_step
        scheduler = llm._machine.scheduler
        self._schedule, scheduler.schedule = scheduler.schedule, self._watched_schedule

    def live(self) -> list[Request]:
        """The requests that are not over."""
        return [output.request for output in list(self._llm._machine.core.inner._live.values())]

    def hold(self) -> None:
        """Let no step begin until `run_until` or `release`."""
        self._go.clear()

    def run_until(self, condition: Callable[[], bool]) -> None:
        """Let steps through until this holds after one; what that one gave is not delivered yet."""
        self._held.clear()
        self._until = condition
        self._go.set()
        assert self._held.wait(PATIENCE), "the engine never came to that point"

    def release(self) -> None:
        """Let all go on."""
        self._until = None
        self._go.set()

    def _watched_step(self) -> Any:
        self._go.wait(PATIENCE)
        outputs = self._step()
        try:
            self._llm.check()
            check_blocks(self._llm, self.live())
        except AssertionError as error:
            self.violations.append(str(error))
        if self._until is not None and self._until():
            self._until = None
            self._go.clear()
            self._held.set()
            self._go.wait(PATIENCE)
        return outputs

    def _watched_schedule(self) -> Any:
        plan = self._schedule()
        if not plan.failed and not any(item.num_tokens > 0 for item in plan.scheduled):
            self.violations.append("8: work exists, but the step computes and refuses nothing")
        return plan


def check_blocks(llm: Any, live: list[Request]) -> None:
    """Invariants 1 to 5, of a moment between two steps. Raises AssertionError with the number."""
    cache = llm._machine.cache
    blocks, tree = cache._blocks, cache._tree
    in_tables = {block for table in blocks._tables.values() for block in table}
    in_tree, free = tree.all_blocks(), blocks._free
    cached = set(in_tree) - in_tables
    total = len(free) + len(cached) + len(in_tables)
    assert total == blocks.num_blocks, f"1: {total} of {blocks.num_blocks} blocks are accounted for"
    assert len(set(in_tree)) == len(in_tree), "1: a block is owned twice by the tree"
    for table in blocks._tables.values():
        assert len(set(table)) == len(table), "1: a block is owned twice by a table"
    both = in_tables.intersection(free)
    assert not both, f"2: the blocks {both} are free and in a table"
    for request in live:
        table, filed = cache.block_table(request), cache._filed.get(request.request_id, 0)
        canonical = tree.peek(request.token_ids, filed)
        assert table[:filed] == canonical, "3: a table points to duplicates of the tree's blocks"
        most = request.num_prompt_tokens - 1
        assert request.num_cached_tokens <= most, "5: a prompt was taken whole from the cache"
    for node in tree._nodes():
        locks = [child.lock_count for child in node.children.values()]
        assert node.lock_count >= max(locks, default=0), "4: a child is locked more often"
    evictable = cache.stats()["cached_blocks"]
    assert evictable == len(cached), (
        f"4: {evictable} blocks may be evicted, {len(cached)} are unused"
    )


def is_empty(server: LiveServer) -> bool:
    """No request is served or waits, and no block is used beyond those kept in the tree."""
    idle = not server.llm.has_work and server.engine.num_streams == 0
    return idle and not server.llm._machine.cache._blocks._tables


def num_tasks(server: LiveServer) -> int:
    """Coroutines that the event loop has."""
    return len(asyncio.all_tasks(server.engine._loop))


def assert_healthy(server: LiveServer, watch: Watch) -> None:
    """After a fault: all eight invariants held and hold, nothing is left, and the server serves."""
    within(PATIENCE, lambda: is_empty(server))
    thread: Any = server.engine._driver
    within(PATIENCE, lambda: not (thread._owners or thread._live))
    within(PATIENCE, lambda: num_tasks(server) <= watch.num_tasks)
    assert watch.live() == []
    assert watch.violations == []
    assert server.http.get("/health").json()["status"] == "ready"
    # The engine's thread sleeps, so this one may look.
    llm = server.llm
    llm.check()
    check_blocks(llm, [])
    llm.reset_prefix_cache()
    stats = llm.stats()
    assert stats["free_blocks"] == stats["total_blocks"], "7: evicting all returns every block"
    assert stats["used_blocks"] == stats["cached_blocks"] == 0
    answers = [server.http.post("/v1/completions", json=PROBE).json() for _ in range(2)]
    hits = [answer["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in answers]
    assert hits[0] == 0 < hits[1]
    assert answers[0]["choices"] == answers[1]["choices"], "6: a cache hit changes the answer"
    within(PATIENCE, lambda: is_empty(server))
    assert watch.violations == []
