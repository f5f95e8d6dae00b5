"""Which request uses which blocks, and what is kept for the next one that starts the same.

Called by the scheduler. It sits on a BlockManager (who holds which block) and a RadixTree (which block
holds the K and V of which tokens); given no tree, it does without prefix reuse.
"""

from yaie.core.contracts import BlockManager, RadixTree
from yaie.core.errors import OutOfBlocksError
from yaie.core.request import Request, RequestStatus

from .agreement import check_agreement

Pairs = list[tuple[int, int]]


# ANCHOR: tables
class KVCacheManager:
    """See `yaie.core.contracts.KVCacheManager`.

    A table, from left to right, and what this class knows of it:

        | filed in the tree, locked at _nodes[id] | computed, not filed | allocated, to be computed |
        0                               _filed[id]       num_computed // block_size         len(table)
    """

    def __init__(self, blocks: BlockManager, tree: RadixTree | None) -> None:
        self.block_size = blocks.block_size
        self._blocks = blocks
        self._tree = tree
        self._nodes: dict[str, object] = {}
        self._filed: dict[str, int] = {}
        self._computing: set[tuple[int, tuple[int, ...]]] = set()
        self._moves: tuple[Pairs, Pairs, Pairs] = ([], [], [])
        self._evicted = 0

    # ANCHOR_END: tables

    # ANCHOR: admit
    def cached_tokens(self, request: Request) -> int:
        """How many leading tokens a new table for this request would find cached."""
        return len(self._peek(request)) * self.block_size

    def admit(self, request: Request) -> int:
        """Start the table with the cached prefix, or the prompt blocks of the `fork_of` sibling.

        A request that may not reuse a prefix starts with nothing, whatever is cached. Sets and returns
        `num_computed_tokens`, at most num_tokens - 1: without a token to compute there were no logits.
        """
        # BEGIN SOLUTION 3.5
        sibling = request.fork_of
        if sibling is not None and self._can_fork(sibling):
            # The last token's block comes from the sibling even if the tree has it: this request will
            # write there, into a copy of its own.
            self._start_table(request, (request.num_prompt_tokens - 1) // self.block_size)
            num_shared = len(self._blocks.get_physical_blocks(request.request_id))
            in_use = -(-request.num_prompt_tokens // self.block_size)
            rest = self._blocks.get_physical_blocks(sibling.request_id)[num_shared:in_use]
            self._blocks.share(request.request_id, rest)
            request.num_computed_tokens = request.num_prompt_tokens - 1
        else:
            matched = self._start_table(request, (request.num_tokens - 1) // self.block_size)
            request.num_computed_tokens = matched * self.block_size
        if request.num_preemptions == 0:
            request.num_cached_tokens = request.num_computed_tokens
        return request.num_computed_tokens
        # END SOLUTION

    def _start_table(self, request: Request, max_blocks: int) -> int:
        """Make a table of the cached blocks; returns how many those are."""
        # BEGIN SOLUTION 3.5
        matched = self._lock_prefix(request, max_blocks if request.may_reuse_prefix else 0)
        self._blocks.share(request.request_id, matched)
        self._filed[request.request_id] = len(matched)
        return len(matched)
        # END SOLUTION

    def _lock_prefix(self, request: Request, max_blocks: int) -> list[int]:
        """The blocks of the longest cached prefix, safe from eviction until `_forget`."""
        # BEGIN SOLUTION 3.5
        if self._tree is None:
            return []
        matched, node = self._tree.match_prefix(request.token_ids, max_blocks)
        self._tree.lock(node)
        self._nodes[request.request_id] = node
        return matched
        # END SOLUTION

    def _can_fork(self, sibling: Request) -> bool:
        """Whether the sibling has K and V of the whole prompt in blocks that stay where they are.

        Blocks that it has not filed yet may be replaced by the tree's, under the eyes of whoever shares
        them; the one that will be copied at once is no such matter.
        """
        if sibling.status is not RequestStatus.RUNNING or _lacks_prompt(sibling):
            return False
        needed = (sibling.num_prompt_tokens - 1) // self.block_size
        return self._tree is None or self._filed[sibling.request_id] >= needed

    # ANCHOR_END: admit

    # ANCHOR: is_pending
    def begin_step(self) -> None:
        """Forget which blocks the last step was computing."""
        self._computing.clear()

    def is_pending(self, request: Request) -> bool:
        """Whether this step computes the next block that the request lacks, for somebody else."""
        # BEGIN SOLUTION 3.7
        sibling = request.fork_of
        if (
            sibling is not None
            and sibling.status is RequestStatus.RUNNING
            and _lacks_prompt(sibling)
        ):
            return True
        if self._tree is None or not self._computing or not request.may_reuse_prefix:
            return False
        matched = self._peek(request)
        if len(matched) >= (request.num_tokens - 1) // self.block_size:
            return False
        return self._block_key(request, matched, len(matched)) in self._computing
        # END SOLUTION

    def _peek(self, request: Request) -> list[int]:
        if self._tree is None or not request.may_reuse_prefix:
            return []
        return self._tree.peek(request.token_ids, (request.num_tokens - 1) // self.block_size)

    def _block_key(
        self, request: Request, table: list[int], index: int
    ) -> tuple[int, tuple[int, ...]]:
        """Names a block's content: the block before it (which stands for all before) and its tokens."""
        begin = index * self.block_size
        before = table[index - 1] if index else -1
        return before, tuple(request.token_ids[begin : begin + self.block_size])

    # ANCHOR_END: is_pending

    # ANCHOR: allocate
    def allocate(self, request: Request, num_tokens: int, *, keep_free: int = 0) -> bool:
        """Make room for the request's first `num_tokens` tokens; False, nothing changed, if it cannot.

        Evicts unreferenced cached blocks as needed, no more than are missing. A block that somebody
        else can see is copied before this request writes to it. For `is_pending`, `_computing` notes
        the first block that a chunk of more than one token fills, by its `_block_key`.
        """
        # BEGIN SOLUTION 3.5
        table = self._blocks.get_physical_blocks(request.request_id)
        writes_from = request.num_computed_tokens // self.block_size
        shared = writes_from < len(table) and self._blocks.ref_count(table[writes_from]) > 1
        missing = max(0, -(-num_tokens // self.block_size) - len(table))
        wanted = missing + shared
        if wanted:
            if wanted + keep_free > self.num_available_blocks:
                return False
            self._evict_for(wanted)
            if shared:
                pair = self._blocks.copy_on_write(request.request_id, writes_from)
                self._moves[2].extend([pair] if pair else [])
            self._blocks.allocate(request.request_id, missing)
        is_chunk = num_tokens - request.num_computed_tokens > 1
        if is_chunk and num_tokens // self.block_size > writes_from:
            table = self._blocks.get_physical_blocks(request.request_id)
            self._computing.add(self._block_key(request, table, writes_from))
        return True
        # END SOLUTION

    @property
    def num_available_blocks(self) -> int:
        """Blocks that are free, or cached and evictable."""
        evictable = self._tree.num_evictable if self._tree is not None else 0
        return self._blocks.num_free + evictable

    def _evict_for(self, num_blocks: int) -> None:
        """Have `num_blocks` free blocks, at the cost of the least recently used cached ones."""
        # BEGIN SOLUTION 3.5
        short = num_blocks - self._blocks.num_free
        if short > 0 and self._tree is not None:
            evicted = self._tree.evict(short)
            self._blocks.release(evicted)
            self._evicted += len(evicted)
        # END SOLUTION

    def reset_prefix_cache(self) -> int:
        """Evict everything that no request uses; returns how many blocks that freed."""
        before = self._blocks.num_free
        self._evict_for(self.num_available_blocks)
        return self._blocks.num_free - before

    # ANCHOR_END: allocate

    # ANCHOR: commit
    def commit(self, request: Request) -> None:
        """File the full blocks of computed tokens in the tree; take the tree's where it has them.

        The longer path is locked before the shorter one is unlocked, so that no block of the table is
        unprotected for a moment. Called after every step, and costs nothing where no block became full.
        """
        # BEGIN SOLUTION 3.6
        key = request.request_id
        full, filed = request.num_computed_tokens // self.block_size, self._filed[key]
        if self._tree is None or full <= filed:
            return
        table = self._blocks.get_physical_blocks(key)[:full]
        existing, node = self._tree.insert(request.token_ids, table)
        self._blocks.hold(table[existing:])
        self._tree.lock(node)
        self._tree.unlock(self._nodes[key])
        self._nodes[key] = node
        self._filed[key] = full
        if existing > filed:
            # Somebody filed the same tokens since: use theirs, and only then free ours.
            self._blocks.replace(key, filed, self._tree.path_blocks(node)[filed:existing])
        # END SOLUTION

    def free(self, request: Request, *, keep: bool = True) -> None:
        """File what is computed (unless `keep` is False), then drop all that the request holds."""
        # BEGIN SOLUTION 3.6
        key = request.request_id
        if key in self._filed:
            if keep:
                self.commit(request)
            self._blocks.free(key)
            self._forget(key)
        elif self._blocks.num_swapped_blocks(key):
            self._blocks.discard_swapped(key)
        # END SOLUTION

    def _forget(self, key: str) -> None:
        """Unlock the request's path; its table is gone."""
        del self._filed[key]
        if self._tree is not None:
            self._tree.unlock(self._nodes.pop(key))

    # ANCHOR_END: commit

    # ANCHOR: swap
    def swap_out(self, request: Request) -> bool:
        """Move the table to the host pool; False, nothing changed, if that has no room."""
        # BEGIN SOLUTION 3.7
        self.commit(request)
        try:
            self._moves[0].extend(self._blocks.swap_out(request.request_id))
        except OutOfBlocksError:
            return False
        self._forget(request.request_id)
        return True
        # END SOLUTION

    def swap_in(self, request: Request, num_tokens: int, *, keep_free: int = 0) -> bool:
        """Bring the table back, with room for `num_tokens` tokens; False if there is none.

        Only what the tree has lost meanwhile is copied.
        """
        # BEGIN SOLUTION 3.7
        key = request.request_id
        full = request.num_computed_tokens // self.block_size
        shared = self._lock_prefix(request, full)
        wanted = max(0, -(-num_tokens // self.block_size) - len(shared))
        if wanted + keep_free > self.num_available_blocks:
            if self._tree is not None:
                self._tree.unlock(self._nodes.pop(key))
            return False
        self._evict_for(wanted)
        self._moves[1].extend(self._blocks.swap_in(key, shared))
        self._blocks.allocate(key, wanted + len(shared) - len(self.block_table(request)))
        self._filed[key] = len(shared)
        return True
        # END SOLUTION

    def take_moves(self) -> tuple[Pairs, Pairs, Pairs]:
        """(swap_out, swap_in, copies) promised since the last call."""
        moves, self._moves = self._moves, ([], [], [])
        return moves

    # ANCHOR_END: swap

    # ANCHOR: slot_mapping
    def block_table(self, request: Request) -> list[int]:
        """The request's physical blocks."""
        return self._blocks.get_physical_blocks(request.request_id)

    def slot_mapping(self, request: Request, start: int, num_tokens: int) -> list[int]:
        """The slots of tokens [start, start + num_tokens)."""
        # BEGIN SOLUTION 3.5
        table, size = self.block_table(request), self.block_size
        return [table[i // size] * size + i % size for i in range(start, start + num_tokens)]
        # END SOLUTION

    # ANCHOR_END: slot_mapping

    def stats(self) -> dict[str, int]:
        """Blocks as they stand, and evictions since the start."""
        cached = self._tree.num_evictable if self._tree is not None else 0
        free = self._blocks.num_free
        return {
            "total_blocks": self._blocks.num_blocks,
            "free_blocks": free,
            "cached_blocks": cached,
            "used_blocks": self._blocks.num_blocks - free - cached,
            "evicted_blocks": self._evicted,
        }

    # ANCHOR: check
    def check(self) -> None:
        """Raise InvariantError unless tables, tree and blocks agree; see `agreement.py`."""
        self._blocks.check()
        if self._tree is not None:
            self._tree.check()
            check_agreement(self._blocks, self._tree, self._nodes, self._filed)

    # ANCHOR_END: check


def _lacks_prompt(request: Request) -> bool:
    """Whether some of the prompt is still to be computed."""
    return request.num_computed_tokens < request.num_prompt_tokens
