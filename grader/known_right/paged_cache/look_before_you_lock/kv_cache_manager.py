"""Another right cache manager: it looks (`peek`) before it matches, so that nothing is ever taken back.

A request has one record, in which its node, its filed blocks and its chunk stand, and promised moves
are one list with the kind of each. Blocks that are missing are evicted one by one.
"""

from typing import Any

from yaie.core.contracts import BlockManager, RadixTree
from yaie.core.errors import InvariantError
from yaie.core.request import Request, RequestStatus

Pairs = list[tuple[int, int]]


class _Record:
    """node: what is locked. filed: blocks of the table that are the tree's. full: blocks that chunks on
    their way will fill."""

    def __init__(self, request: Request, node: Any, filed: int) -> None:
        self.request, self.node, self.filed, self.full = request, node, filed, 0


class KVCacheManager:
    """See `yaie.core.contracts.KVCacheManager`."""

    def __init__(self, blocks: BlockManager, tree: RadixTree | None) -> None:
        self.block_size = blocks.block_size
        self.blocks = blocks
        self.tree = tree
        self.records: dict[str, _Record] = {}
        self.busy: dict[str, _Record] = {}
        self.promised: list[tuple[int, tuple[int, int]]] = []
        self.evictions = 0

    def _needed(self, num_tokens: int) -> int:
        """Blocks for so many tokens."""
        return (num_tokens + self.block_size - 1) // self.block_size

    def _cached(self, request: Request, limit: int) -> list[int]:
        if self.tree is None or not request.may_reuse_prefix:
            return []
        return self.tree.peek(request.token_ids, limit)

    def _useful(self, request: Request) -> int:
        """Blocks that are of use if they are cached: not the one of the last token."""
        return (request.num_tokens - 1) // self.block_size

    def cached_tokens(self, request: Request) -> int:
        """Tokens that would be found."""
        return self.block_size * len(self._cached(request, self._useful(request)))

    def admit(self, request: Request) -> int:
        """A table of what is cached; a fork's of what its sibling has."""
        sibling = request.fork_of
        if sibling is not None and self._has_prompt(sibling):
            last = request.num_prompt_tokens - 1
            self._open(request, last // self.block_size)
            have = len(self.block_table(request))
            theirs = self.block_table(sibling)[have : self._needed(request.num_prompt_tokens)]
            self.blocks.share(request.request_id, theirs)
            computed = last
        else:
            self._open(request, self._useful(request))
            computed = len(self.block_table(request)) * self.block_size
        request.num_computed_tokens = computed
        if not request.num_preemptions:
            request.num_cached_tokens = computed
        return computed

    def _open(self, request: Request, limit: int) -> None:
        """Begin a table with cached blocks, and lock them."""
        shared = self._lock(request, limit if request.may_reuse_prefix else 0)
        self.blocks.share(request.request_id, shared)

    def _lock(self, request: Request, limit: int) -> list[int]:
        shared: list[int] = []
        node = None
        if self.tree is not None:
            shared, node = self.tree.match_prefix(request.token_ids, limit)
            self.tree.lock(node)
        self.records[request.request_id] = _Record(request, node, len(shared))
        return shared

    def _has_prompt(self, sibling: Request) -> bool:
        """Whether a fork may start from the sibling's table: it stays as it is up to the last block."""
        record = self.records.get(sibling.request_id)
        if record is None or not sibling.has_settled_prompt:
            return False
        return (
            self.tree is None or record.filed >= (sibling.num_prompt_tokens - 1) // self.block_size
        )

    def is_pending(self, request: Request) -> bool:
        """Whether a chunk on its way fills the first block that is not cached."""
        sibling = request.fork_of
        runs = sibling is not None and sibling.status is RequestStatus.RUNNING
        if sibling is not None and runs and not sibling.has_settled_prompt:
            return True
        if self.tree is None or not self.busy or not request.may_reuse_prefix:
            return False
        lacks = 1 + len(self._cached(request, self._useful(request)))
        if lacks > self._useful(request):
            return False
        begin, end = (lacks - 1) * self.block_size, lacks * self.block_size
        block = request.token_ids[begin:end]
        for record in self.busy.values():
            theirs = record.request.token_ids
            alike = record.full >= lacks and theirs[begin:end] == block
            if alike and theirs[:begin] == request.token_ids[:begin]:
                return True
        return False

    def allocate(self, request: Request, num_tokens: int, *, keep_free: int = 0) -> bool:
        """Room for the first `num_tokens` tokens."""
        table = self.block_table(request)
        writes = request.num_computed_tokens // self.block_size
        copies = int(writes < len(table) and self.blocks.ref_count(table[writes]) != 1)
        fresh = max(self._needed(num_tokens), len(table)) - len(table)
        if fresh + copies > 0:
            if self.num_available_blocks - fresh - copies < keep_free:
                return False
            self._evict_until(fresh + copies)
            if copies and (pair := self.blocks.copy_on_write(request.request_id, writes)):
                self.promised.append((2, pair))
            if fresh:
                self.blocks.allocate(request.request_id, fresh)
        known = min(len(request.token_ids), num_tokens)
        if known > request.num_computed_tokens + 1:
            record = self.records[request.request_id]
            record.full = known // self.block_size
            self.busy[request.request_id] = record
        return True

    @property
    def num_available_blocks(self) -> int:
        """Free, or cached and not needed."""
        return self.blocks.num_free + (self.tree.num_evictable if self.tree else 0)

    def _evict_until(self, num_free: int) -> None:
        while self.tree is not None and self.blocks.num_free < num_free:
            evicted = self.tree.evict(1)
            self.blocks.release(evicted)
            self.evictions += len(evicted)

    def reset_prefix_cache(self) -> int:
        """Evict all that is not in use."""
        if self.tree is None:
            return 0
        evicted = self.tree.evict(self.tree.num_evictable)
        self.blocks.release(evicted)
        self.evictions += len(evicted)
        return len(evicted)

    def commit(self, request: Request) -> None:
        """File what is settled and full."""
        record = self.records[request.request_id]
        full = request.num_settled_tokens // self.block_size
        if full >= record.full:
            self.busy.pop(request.request_id, None)
            record.full = 0
        if self.tree is None or full <= record.filed:
            return
        key, filed = request.request_id, record.filed
        table = self.block_table(request)
        known, node = self.tree.insert(request.token_ids, table[:full])
        self.tree.lock(node)
        if full > known:
            self.blocks.hold(table[known:full])
        if known > filed:
            path = self.tree.path_blocks(node)
            for index in range(filed, known):
                self.blocks.replace(key, index, [path[index]])
        self.tree.unlock(record.node)
        record.node, record.filed = node, full

    def free(self, request: Request, *, keep: bool = True) -> None:
        """Everything that it has, wherever that is."""
        key = request.request_id
        if key in self.records:
            if keep:
                self.commit(request)
            self.blocks.free(key)
            self._close(request)
        if self.blocks.num_swapped_blocks(key):
            self.blocks.discard_swapped(key)

    def _close(self, request: Request) -> None:
        self.busy.pop(request.request_id, None)
        record = self.records.pop(request.request_id)
        if self.tree is not None:
            self.tree.unlock(record.node)

    def swap_out(self, request: Request) -> bool:
        """To the host, with what could be filed left in the tree too."""
        if self.blocks.num_free_host < len(self.block_table(request)):
            return False
        self.commit(request)
        pairs = self.blocks.swap_out(request.request_id)
        self.promised += [(0, pair) for pair in pairs]
        self._close(request)
        return True

    def swap_in(self, request: Request, num_tokens: int, *, keep_free: int = 0) -> bool:
        """Back. What it would share can be evicted until it is locked: that is not room."""
        key, full = request.request_id, request.num_computed_tokens // self.block_size
        before = self.num_available_blocks
        length = max(self.blocks.num_swapped_blocks(key), self._needed(num_tokens))
        found = self.tree.peek(request.token_ids, full) if self.tree is not None else []
        idle = sum(self.blocks.ref_count(block) == 1 for block in found)
        if length - len(found) + keep_free > before - idle:
            return False
        shared = self._lock(request, full)
        self._evict_until(length - len(shared))
        self.promised += [(1, pair) for pair in self.blocks.swap_in(key, shared)]
        self.blocks.allocate(key, length - len(self.block_table(request)))
        return True

    def take_moves(self) -> tuple[Pairs, Pairs, Pairs]:
        """By kind."""
        promised, self.promised = self.promised, []
        out, back, copies = ([pair for kind, pair in promised if kind == k] for k in range(3))
        return out, back, copies

    def block_table(self, request: Request) -> list[int]:
        """The request's table."""
        return self.blocks.get_physical_blocks(request.request_id)

    def stats(self) -> dict[str, int]:
        """At present."""
        cached = self.num_available_blocks - self.blocks.num_free
        return {
            "used_blocks": self.blocks.num_blocks - self.num_available_blocks,
            "free_blocks": self.blocks.num_free,
            "cached_blocks": cached,
            "total_blocks": self.blocks.num_blocks,
            "evicted_blocks": self.evictions,
        }

    def check(self) -> None:
        """Raise InvariantError unless the parts and the records agree."""
        self.blocks.check()
        if self.tree is None:
            return
        self.tree.check()
        in_tables = set()
        for record in self.records.values():
            table = self.block_table(record.request)
            in_tables.update(table)
            if table[: record.filed] != self.tree.path_blocks(record.node):
                raise InvariantError(f"{record.request.request_id} has other blocks than the tree")
        idle = set(self.tree.all_blocks()) - in_tables
        if len(idle) != self.tree.num_evictable:
            raise InvariantError(f"{sorted(idle)} are idle, {self.tree.num_evictable} evictable")
