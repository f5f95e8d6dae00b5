# Lab 3, your part (edition 2): tasks 3.5, 3.6, 3.7, 3.8, 3.9, 3.10. The rest is given.
"""Which request uses which blocks, and what is kept for the next one that starts the same.

Called by the scheduler. It sits on a BlockManager (who holds which block) and a RadixTree (which block
holds the K and V of which tokens); given no tree, it does without prefix reuse.
"""

from yaie.core.contracts import BlockManager, RadixTree
from yaie.core.request import Request, RequestStatus

from .agreement import check_agreement

Pairs = list[tuple[int, int]]


# ANCHOR: tables
class KVCacheManager:
    """See `yaie.core.contracts.KVCacheManager`.

    A table, from left to right, and what this class knows of it:

        | filed in the tree, locked at _nodes[id] | computed, not filed | allocated, to be computed |
        0                               _filed[id]       num_computed // block_size         len(table)

    A request with chunks that are not filed yet is in `_computing`, with the number of blocks that
    will be full when they are computed.
    """

    def __init__(self, blocks: BlockManager, tree: RadixTree | None) -> None:
        self.block_size = blocks.block_size
        self._blocks = blocks
        self._tree = tree
        self._nodes: dict[str, object] = {}
        self._filed: dict[str, int] = {}
        self._computing: dict[Request, int] = {}
        self._moves: tuple[Pairs, Pairs, Pairs] = ([], [], [])
        self._evicted = 0

    # ANCHOR_END: tables

    # ANCHOR: admit
    def cached_tokens(self, request: Request) -> int:
        """How many leading tokens a new table for this request would find cached."""
        return len(self._peek(request)) * self.block_size

    def admit(self, request: Request) -> int:
        """Start the table with the cached prefix, or as a fork of its sibling (`_start_fork`, task 3.7).

        A request that may not reuse a prefix starts with nothing, whatever is cached. Sets and returns
        `num_computed_tokens`, at most num_tokens - 1: without a token to compute there would
        be no logits. `num_cached_tokens` gets the same number, unless the request was preempted.
        """
        # TODO 3.5: your code here (the reference: 10 lines).
        raise NotImplementedError(
            "paged_cache task 3.5: not implemented yet; see chapter The paged KV cache"
        )

    def _start_table(self, request: Request, max_blocks: int) -> int:
        """Make a table of the cached blocks; returns how many those are.

        `_lock_prefix` sets `_nodes`, this method sets `_filed`.
        """
        # TODO 3.5: your code here (the reference: 4 lines).
        raise NotImplementedError(
            "paged_cache task 3.5: not implemented yet; see chapter The paged KV cache"
        )

    def _lock_prefix(self, request: Request, max_blocks: int) -> list[int]:
        """The blocks of the longest cached prefix, safe from eviction until `_forget`. Sets `_nodes`, if
        there is a tree. The caller sets `_filed`, once the table has these blocks."""
        # TODO 3.5: your code here (the reference: 6 lines).
        raise NotImplementedError(
            "paged_cache task 3.5: not implemented yet; see chapter The paged KV cache"
        )

    def _can_fork(self, sibling: Request) -> bool:
        """Whether the sibling has K and V of the whole prompt in blocks that stay where they are.

        When it files a block, the tree's may take its place in the table, and a fork would still have
        the old one. So all must be filed but the last, which the fork copies before it writes.
        """
        if sibling.status is not RequestStatus.RUNNING or not sibling.has_settled_prompt:
            return False
        needed = (sibling.num_prompt_tokens - 1) // self.block_size
        return self._tree is None or self._filed[sibling.request_id] >= needed

    def _start_fork(self, request: Request, sibling: Request) -> int:
        """Make a table of the sibling's prompt blocks; returns how many tokens are computed in them.

        Those are all of the prompt but its last token. `_start_table` takes what is cached of the
        blocks before that token's, and the sibling has the rest. For siblings that `_can_fork` allows.
        """
        # TODO 3.7: your code here (the reference: 4 lines).
        raise NotImplementedError(
            "paged_cache task 3.7: not implemented yet; see chapter The paged KV cache"
        )

    # ANCHOR_END: admit

    # ANCHOR: is_pending
    def is_pending(self, request: Request) -> bool:
        """Whether another request is about to fill the next block that this one lacks.

        It waits for the sibling that it forks, and for a block that a chunk in `_computing` fills.
        """
        # TODO 3.9: your code here (the reference: 14 lines).
        raise NotImplementedError(
            "paged_cache task 3.9: not implemented yet; see chapter The paged KV cache"
        )

    def _peek(self, request: Request) -> list[int]:
        if self._tree is None or not request.may_reuse_prefix:
            return []
        return self._tree.peek(request.token_ids, (request.num_tokens - 1) // self.block_size)

    def _start_alike(self, one: Request, other: Request, num_blocks: int) -> bool:
        """Whether the first `num_blocks` blocks of the two have the same tokens.

        The last of them is compared first, since that is where prompts part.
        """
        end = num_blocks * self.block_size
        begin = end - self.block_size
        return (
            one.token_ids[begin:end] == other.token_ids[begin:end]
            and one.token_ids[:begin] == other.token_ids[:begin]
        )

    # ANCHOR_END: is_pending

    # ANCHOR: allocate
    def allocate(self, request: Request, num_tokens: int, *, keep_free: int = 0) -> bool:
        """Make room for the request's first `num_tokens` tokens; False, nothing changed, if it cannot.

        Evicts unreferenced cached blocks as needed, no more than are missing. A block that another
        holder can see is copied before this request writes to it. For `is_pending`, a chunk of more than
        one known token is noted in `_computing`.
        """
        # TODO 3.6: your code here (the reference: 17 lines).
        raise NotImplementedError(
            "paged_cache task 3.6: not implemented yet; see chapter The paged KV cache"
        )

    @property
    def num_available_blocks(self) -> int:
        """Blocks that are free, or cached and evictable."""
        evictable = self._tree.num_evictable if self._tree is not None else 0
        return self._blocks.num_free + evictable

    def _evict_for(self, num_blocks: int) -> None:
        """Have `num_blocks` free blocks, at the cost of the least recently used cached ones."""
        # TODO 3.6: your code here (the reference: 5 lines).
        raise NotImplementedError(
            "paged_cache task 3.6: not implemented yet; see chapter The paged KV cache"
        )

    def reset_prefix_cache(self) -> int:
        """Evict everything that no request uses; returns how many blocks that freed."""
        before = self._blocks.num_free
        self._evict_for(self.num_available_blocks)
        return self._blocks.num_free - before

    # ANCHOR_END: allocate

    # ANCHOR: commit
    def commit(self, request: Request) -> None:
        """File the full blocks of settled tokens in the tree; take the tree's where it has them.

        The longer path is locked before the shorter one is unlocked, which leaves no block of the table
        unprotected for a moment. Chunks that are filed are noted in `_computing` no more. Called often,
        and costs nothing where no block became full.
        """
        # TODO 3.8: your code here (the reference: 15 lines).
        raise NotImplementedError(
            "paged_cache task 3.8: not implemented yet; see chapter The paged KV cache"
        )

    def free(self, request: Request, *, keep: bool = True) -> None:
        """File what is computed (unless `keep` is False), then drop all that the request holds."""
        # TODO 3.8: your code here (the reference: 8 lines).
        raise NotImplementedError(
            "paged_cache task 3.8: not implemented yet; see chapter The paged KV cache"
        )

    def _forget(self, request: Request) -> None:
        """Unlock the path of a request whose table is gone; no other need wait for it."""
        del self._filed[request.request_id]
        self._computing.pop(request, None)
        if self._tree is not None:
            self._tree.unlock(self._nodes.pop(request.request_id))

    # ANCHOR_END: commit

    # ANCHOR: swap
    def swap_out(self, request: Request) -> bool:
        """Move the table to the host pool; False, nothing changed, if that has no room.

        What is computed may be filed first: what the tree has then need not be copied back.
        """
        # TODO 3.10: your code here (the reference: 6 lines).
        raise NotImplementedError(
            "paged_cache task 3.10: not implemented yet; see chapter The paged KV cache"
        )

    def swap_in(self, request: Request, num_tokens: int, *, keep_free: int = 0) -> bool:
        """Bring the table back, with room for `num_tokens` tokens; False if there is none.

        Of the `num_computed_tokens`, only what the tree has lost meanwhile is copied; what the tree has
        beyond them is not taken, since this request goes on computing there.
        """
        # TODO 3.10: your code here (the reference: 14 lines).
        raise NotImplementedError(
            "paged_cache task 3.10: not implemented yet; see chapter The paged KV cache"
        )

    def take_moves(self) -> tuple[Pairs, Pairs, Pairs]:
        """(swap_out, swap_in, copies) promised since the last call."""
        moves, self._moves = self._moves, ([], [], [])
        return moves

    # ANCHOR_END: swap

    def block_table(self, request: Request) -> list[int]:
        """The request's physical blocks."""
        return self._blocks.get_physical_blocks(request.request_id)

    def stats(self) -> dict[str, int]:
        """Blocks at present, and evictions since the start."""
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
