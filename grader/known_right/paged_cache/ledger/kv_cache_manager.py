"""Which request uses which blocks, with one record for each request that has a table.

Different from the reference: what a request computes is remembered as whole prefixes, one for each
block of its chunks, until they are filed; `commit` points the whole filed part of the table at the
tree's path; swapping out asks for room first and files nothing.
"""

from dataclasses import dataclass, field

from yaie.core.contracts import BlockManager, RadixTree
from yaie.core.errors import InvariantError
from yaie.core.request import Request, RequestStatus

Pairs = list[tuple[int, int]]


@dataclass(slots=True)
class _Seat:
    """A request's place in the cache.

    node: the locked end of its first `filed` blocks. computing: the prefixes that its chunks complete.
    """

    node: object = None
    filed: int = 0
    computing: set[tuple[int, ...]] = field(default_factory=set)


class KVCacheManager:
    """See `yaie.core.contracts.KVCacheManager`."""

    def __init__(self, blocks: BlockManager, tree: RadixTree | None) -> None:
        self.block_size = blocks.block_size
        self._blocks = blocks
        self._tree = tree
        self._seats: dict[str, _Seat] = {}
        self._to_host: Pairs = []
        self._from_host: Pairs = []
        self._copies: Pairs = []
        self._evicted = 0

    def cached_tokens(self, request: Request) -> int:
        """How many leading tokens a new table for this request would find cached."""
        return len(self._find(request)) * self.block_size

    def _find(self, request: Request) -> list[int]:
        most = (request.num_tokens - 1) // self.block_size
        reuses = self._tree and request.may_reuse_prefix
        return self._tree.peek(request.token_ids, most) if reuses else []

    def _sit(self, request: Request, max_blocks: int) -> tuple[_Seat, list[int]]:
        """A seat with the cached prefix locked, and the blocks of that."""
        if self._tree is None:
            return _Seat(), []
        matched, node = self._tree.match_prefix(request.token_ids, max_blocks)
        self._tree.lock(node)
        return _Seat(node, len(matched)), matched

    def _rise(self, seat: _Seat) -> None:
        if self._tree is not None:
            self._tree.unlock(seat.node)

    def admit(self, request: Request) -> int:
        """Start the table with the cached prefix, or with the sibling's prompt."""
        key, size, sibling = request.request_id, self.block_size, request.fork_of
        forks = sibling is not None and self._is_ready(sibling)
        known = request.num_prompt_tokens if forks else request.num_tokens
        reused = (known - 1) // size if request.may_reuse_prefix else 0
        seat, table = self._sit(request, reused)
        if sibling is not None and forks:
            table = table + self.block_table(sibling)[len(table) : self._blocks_for(known)]
        self._seats[key] = seat
        self._blocks.share(key, table)
        request.num_computed_tokens = known - 1 if forks else len(table) * size
        if not request.num_preemptions:
            request.num_cached_tokens = request.num_computed_tokens
        return request.num_computed_tokens

    def _is_ready(self, sibling: Request) -> bool:
        """Whether the sibling's prompt is computed, and filed but for the block that is copied."""
        if sibling.status is not RequestStatus.RUNNING or _is_behind(sibling):
            return False
        needed = (sibling.num_prompt_tokens - 1) // self.block_size
        return self._tree is None or self._seats[sibling.request_id].filed >= needed

    def _blocks_for(self, num_tokens: int) -> int:
        return (num_tokens + self.block_size - 1) // self.block_size

    def is_pending(self, request: Request) -> bool:
        """Whether the next block that the request lacks is being computed for somebody else."""
        sibling = request.fork_of
        if sibling and sibling.status is RequestStatus.RUNNING and _is_behind(sibling):
            return True
        if not request.may_reuse_prefix:
            return False
        end = self.cached_tokens(request) + self.block_size
        prefix = tuple(request.token_ids[:end])
        return end < request.num_tokens and any(
            prefix in seat.computing for seat in self._seats.values()
        )

    def allocate(self, request: Request, num_tokens: int, *, keep_free: int = 0) -> bool:
        """Make room for the first `num_tokens` tokens; False, with nothing changed, if it cannot."""
        key, size, begin = request.request_id, self.block_size, request.num_computed_tokens
        table = self.block_table(request)
        to_write = table[begin // size : begin // size + 1]
        copies = sum(self._blocks.ref_count(block) > 1 for block in to_write)
        grows = max(0, self._blocks_for(num_tokens) - len(table))
        if grows + copies and not self._have(grows + copies, keep_free):
            return False
        if copies and (pair := self._blocks.copy_on_write(key, begin // size)):
            self._copies.append(pair)
        self._blocks.allocate(key, grows)
        known = min(num_tokens, len(request.token_ids))
        if self._tree is not None and known > begin + 1:
            ends = range((begin // size + 1) * size, known + 1, size)
            self._seats[key].computing |= {tuple(request.token_ids[:end]) for end in ends}
        return True

    @property
    def num_available_blocks(self) -> int:
        """Blocks that are free, or cached and evictable."""
        return self._blocks.num_free + (self._tree.num_evictable if self._tree else 0)

    def _have(self, num_blocks: int, keep_free: int = 0) -> bool:
        """See that so many blocks are free, by eviction if need be; False if that cannot be."""
        if self.num_available_blocks - num_blocks < keep_free:
            return False
        if self._tree is not None and num_blocks > self._blocks.num_free:
            gone = self._tree.evict(num_blocks - self._blocks.num_free)
            self._blocks.release(gone)
            self._evicted += len(gone)
        return True

    def reset_prefix_cache(self) -> int:
        """Evict everything that no request uses; returns how many blocks that freed."""
        before = self._blocks.num_free
        self._have(self.num_available_blocks)
        return self._blocks.num_free - before

    def commit(self, request: Request) -> None:
        """File the full blocks of settled tokens, and use the tree's where it had them."""
        seat, key = self._seats[request.request_id], request.request_id
        full = request.num_settled_tokens // self.block_size
        if self._tree is None or full <= seat.filed:
            return
        own = self.block_table(request)[:full]
        there, node = self._tree.insert(request.token_ids, own)
        self._tree.lock(node)
        self._blocks.hold(own[there:])
        self._tree.unlock(seat.node)
        rest = {prefix for prefix in seat.computing if len(prefix) > full * self.block_size}
        self._seats[key] = _Seat(node, full, rest)
        path = self._tree.path_blocks(node)
        if path != own:
            self._blocks.replace(key, 0, path)

    def free(self, request: Request, *, keep: bool = True) -> None:
        """Drop all that the request holds, here or on the host; file it first unless `keep` is False."""
        key = request.request_id
        if self._blocks.num_swapped_blocks(key):
            self._blocks.discard_swapped(key)
        if key not in self._seats:
            return
        if keep:
            self.commit(request)
        self._blocks.free(key)
        self._rise(self._seats.pop(key))

    def swap_out(self, request: Request) -> bool:
        """Move the table to the host pool; False if that has no room."""
        if len(self.block_table(request)) > self._blocks.num_free_host:
            return False
        self._to_host += self._blocks.swap_out(request.request_id)
        self._rise(self._seats.pop(request.request_id))
        return True

    def swap_in(self, request: Request, num_tokens: int, *, keep_free: int = 0) -> bool:
        """Bring the table back, with room for `num_tokens` tokens; False if there is none."""
        seat, shared = self._sit(request, request.num_computed_tokens // self.block_size)
        on_host = self._blocks.num_swapped_blocks(request.request_id)
        missing = max(on_host, self._blocks_for(num_tokens)) - len(shared)
        if not self._have(missing, keep_free):
            self._rise(seat)
            return False
        key = request.request_id
        copied = self._blocks.swap_in(key, shared)
        self._from_host += copied
        self._blocks.allocate(key, missing - len(copied))
        self._seats[key] = seat
        return True

    def take_moves(self) -> tuple[Pairs, Pairs, Pairs]:
        """(swap_out, swap_in, copies) promised since the last call."""
        moves = self._to_host, self._from_host, self._copies
        self._to_host, self._from_host, self._copies = [], [], []
        return moves

    def block_table(self, request: Request) -> list[int]:
        """The request's physical blocks."""
        return self._blocks.get_physical_blocks(request.request_id)

    def stats(self) -> dict[str, int]:
        """Blocks as they stand, and evictions since the start."""
        total, free = self._blocks.num_blocks, self._blocks.num_free
        cached = self.num_available_blocks - free
        return {
            "total_blocks": total,
            "free_blocks": free,
            "cached_blocks": cached,
            "used_blocks": total - free - cached,
            "evicted_blocks": self._evicted,
        }

    def check(self) -> None:
        """Raise InvariantError unless every filed entry is the tree's own block."""
        self._blocks.check()
        for key, seat in self._seats.items():
            path = self._tree.path_blocks(seat.node) if self._tree else []
            if path != self._blocks.get_physical_blocks(key)[: seat.filed]:
                raise InvariantError(f"the table of {key} has left the tree's path {path}")


def _is_behind(request: Request) -> bool:
    return request.num_settled_tokens < request.num_prompt_tokens
