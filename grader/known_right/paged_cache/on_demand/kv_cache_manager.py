"""Which request uses which blocks, and what is kept for the next one that starts the same.

Different from the reference: `_computing` has the number of tokens that will be computed, not of blocks;
moves are kept by kind, and made into lists when they are taken; requests that went to the host are
remembered until they are back.
"""

from collections import deque

from yaie.core.contracts import BlockManager, RadixTree
from yaie.core.request import Request, RequestStatus

from .agreement import check_agreement

Pairs = list[tuple[int, int]]


class KVCacheManager:
    """See `yaie.core.contracts.KVCacheManager`."""

    def __init__(self, blocks: BlockManager, tree: RadixTree | None) -> None:
        self.block_size = blocks.block_size
        self._blocks = blocks
        self._tree = tree
        self._nodes: dict[str, object] = {}
        self._filed: dict[str, int] = {}
        self._computing: dict[Request, int] = {}
        self._moves: dict[str, deque[tuple[int, int]]] = {}
        self._asleep: set[str] = set()
        self._evicted = 0

    def cached_tokens(self, request: Request) -> int:
        """How many leading tokens a new table for this request would find cached."""
        return len(self._peek(request)) * self.block_size

    def admit(self, request: Request) -> int:
        """Start the table with the cached prefix, or as a fork of its sibling (`_start_fork`, task 3.7).

        A request that may not reuse a prefix starts with nothing, whatever is cached. Sets and returns
        `num_computed_tokens`, at most num_tokens - 1: without a token to compute there would
        be no logits. `num_cached_tokens` gets the same number, unless the request was preempted.
        """
        sibling = request.fork_of
        if sibling is not None and self._can_fork(sibling):
            computed = self._start_fork(request, sibling)
        else:
            matched = self._start_table(request, (request.num_tokens - 1) // self.block_size)
            computed = matched * self.block_size
        request.num_computed_tokens = computed
        if request.num_preemptions == 0:
            request.num_cached_tokens = computed
        return computed

    def _start_table(self, request: Request, max_blocks: int) -> int:
        """Make a table of the cached blocks; returns how many those are.

        `_lock_prefix` sets `_nodes`, this method sets `_filed`.
        """
        matched = self._lock_prefix(request, max_blocks if request.may_reuse_prefix else 0)
        self._blocks.share(request.request_id, matched)
        self._filed[request.request_id] = len(matched)
        return len(matched)

    def _lock_prefix(self, request: Request, max_blocks: int) -> list[int]:
        """The blocks of the longest cached prefix, safe from eviction until `_forget`. Sets `_nodes`, if
        there is a tree. The caller sets `_filed`, once the table has these blocks."""
        if self._tree is None:
            return []
        matched, node = self._tree.match_prefix(request.token_ids, max_blocks)
        self._tree.lock(node)
        self._nodes[request.request_id] = node
        return matched

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
        # The last token's block comes from the sibling even if the tree has it: this request will
        # write there, into a copy of its own.
        own = self._start_table(request, (request.num_prompt_tokens - 1) // self.block_size)
        in_use = -(-request.num_prompt_tokens // self.block_size)
        self._blocks.share(request.request_id, self.block_table(sibling)[own:in_use])
        return request.num_prompt_tokens - 1

    def is_pending(self, request: Request) -> bool:
        """Whether another request is about to fill the next block that this one lacks.

        It waits for the sibling that it forks, and for a block that a chunk in `_computing` fills.
        """
        sibling = request.fork_of
        if (
            sibling is not None
            and sibling.status is RequestStatus.RUNNING
            and not sibling.has_settled_prompt
        ):
            return True
        if self._tree is None or not self._computing or not request.may_reuse_prefix:
            return False
        lacks = len(self._peek(request)) + 1
        return lacks * self.block_size < request.num_tokens and any(
            lacks * self.block_size <= known and self._start_alike(request, other, lacks)
            for other, known in self._computing.items()
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

    def allocate(self, request: Request, num_tokens: int, *, keep_free: int = 0) -> bool:
        """Make room for the request's first `num_tokens` tokens; False, nothing changed, if it cannot.

        Evicts unreferenced cached blocks as needed, no more than are missing. A block that another
        holder can see is copied before this request writes to it. For `is_pending`, a chunk of more than
        one known token is noted in `_computing`.
        """
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
                self._promise("copy", [pair] if pair else [])
            self._blocks.allocate(request.request_id, missing)
        known = min(num_tokens, len(request.token_ids))  # drafts are not
        if known - request.num_computed_tokens > 1:
            self._computing[request] = known
        return True

    @property
    def num_available_blocks(self) -> int:
        """Blocks that are free, or cached and evictable."""
        evictable = self._tree.num_evictable if self._tree is not None else 0
        return self._blocks.num_free + evictable

    def _evict_for(self, num_blocks: int) -> None:
        """Have `num_blocks` free blocks, at the cost of the least recently used cached ones."""
        short = num_blocks - self._blocks.num_free
        if short > 0 and self._tree is not None:
            evicted = self._tree.evict(short)
            self._blocks.release(evicted)
            self._evicted += len(evicted)

    def reset_prefix_cache(self) -> int:
        """Evict everything that no request uses; returns how many blocks that freed."""
        before = self._blocks.num_free
        self._evict_for(self.num_available_blocks)
        return self._blocks.num_free - before

    def commit(self, request: Request) -> None:
        """File the full blocks of settled tokens in the tree; take the tree's where it has them.

        The longer path is locked before the shorter one is unlocked, which leaves no block of the table
        unprotected for a moment. Chunks that are filed are noted in `_computing` no more. Called often,
        and costs nothing where no block became full.
        """
        key = request.request_id
        full, filed = request.num_settled_tokens // self.block_size, self._filed[key]
        if full >= self._computing.get(request, 0) // self.block_size:
            self._computing.pop(request, None)
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
            # Another request filed the same tokens since: use its blocks, and only then free ours.
            self._blocks.replace(key, filed, self._tree.path_blocks(node)[filed:existing])

    def free(self, request: Request, *, keep: bool = True) -> None:
        """File what is computed (unless `keep` is False), then drop all that the request holds."""
        key = request.request_id
        if key in self._filed:
            if keep:
                self.commit(request)
            self._blocks.free(key)
            self._forget(request)
        elif key in self._asleep:
            self._asleep.remove(key)
            self._blocks.discard_swapped(key)

    def _forget(self, request: Request) -> None:
        """Unlock the path of a request whose table is gone; no other need wait for it."""
        del self._filed[request.request_id]
        self._computing.pop(request, None)
        if self._tree is not None:
            self._tree.unlock(self._nodes.pop(request.request_id))

    def swap_out(self, request: Request) -> bool:
        """Move the table to the host pool; False, nothing changed, if that has no room.

        What is computed may be filed first: what the tree has then need not be copied back.
        """
        if len(self.block_table(request)) > self._blocks.num_free_host:
            return False
        self.commit(request)
        self._promise("out", self._blocks.swap_out(request.request_id))
        self._asleep.add(request.request_id)
        self._forget(request)
        return True

    def swap_in(self, request: Request, num_tokens: int, *, keep_free: int = 0) -> bool:
        """Bring the table back, with room for `num_tokens` tokens; False if there is none.

        Of the `num_computed_tokens`, only what the tree has lost meanwhile is copied; what the tree has
        beyond them is not taken, since this request goes on computing there.
        """
        key = request.request_id
        full = request.num_computed_tokens // self.block_size
        shared = self._lock_prefix(request, full)
        # Drafts that were rejected may have left the table longer than its tokens.
        length = max(self._blocks.num_swapped_blocks(key), -(-num_tokens // self.block_size))
        wanted = length - len(shared)
        if wanted + keep_free > self.num_available_blocks:
            if self._tree is not None:
                self._tree.unlock(self._nodes.pop(key))
            return False
        self._evict_for(wanted)
        self._promise("in", self._blocks.swap_in(key, shared))
        self._asleep.remove(key)
        self._blocks.allocate(key, length - len(self.block_table(request)))
        self._filed[key] = len(shared)
        return True

    def take_moves(self) -> tuple[Pairs, Pairs, Pairs]:
        """(swap_out, swap_in, copies) promised since the last call."""
        out, back, copies = (list(self._moves.get(kind, ())) for kind in ("out", "in", "copy"))
        self._moves.clear()
        return out, back, copies

    def _promise(self, kind: str, pairs: Pairs) -> None:
        self._moves.setdefault(kind, deque()).extend(pairs)

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

    def check(self) -> None:
        """Raise InvariantError unless tables, tree and blocks agree; see `agreement.py`."""
        self._blocks.check()
        if self._tree is not None:
            self._tree.check()
            check_agreement(self._blocks, self._tree, self._nodes, self._filed)
