"""Lab 3: the blocks of the KV pool, and which request uses which."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from yaie.core.request import Request


# ANCHOR: block_manager
class BlockManager(Protocol):
    """Lab 3. Owns the blocks of the device pool and of the host pool, and knows which are held.

    A block is free or has a reference count of at least 1: one for each block table it is in, and
    one for each `hold`. Only `free`, `release`, `replace` and `swap_out` make it free again.

    Optional: a block may be in a table more than once, with a reference for each entry. The reference
    takes the place of a part without that for layers that have a window.

    A call costs the blocks that it names, or of the table that it changes. The size of the pools and the
    number of other tables cost nothing, but on the way to the host and back, and in `check`.
    """

    num_blocks: int
    block_size: int
    num_host_blocks: int

    @property
    def num_free(self) -> int:
        """Free device blocks. O(1)."""
        ...

    @property
    def num_free_host(self) -> int:
        """Free host blocks. O(1)."""
        ...

    def allocate(self, request_id: str, num_blocks: int) -> list[int]:
        """Append `num_blocks` fresh blocks to the request's table (made if it has none); returns them.

        All or nothing: raises OutOfBlocksError and changes nothing if too few are free.
        """
        ...

    def share(self, request_id: str, block_ids: Sequence[int]) -> None:
        """Append blocks that are already held to the request's table, one more reference each.

        The table is made if it has none, also to share no block. Raises BlockStateError, with nothing
        changed, if one of the blocks is free.
        """
        ...

    def free(self, request_id: str) -> None:
        """Drop the request's table and its references. Raises BlockStateError if it has none."""
        ...

    def hold(self, block_ids: Sequence[int]) -> None:
        """Add a reference that is in no table (the radix tree's). Raises on a free block."""
        ...

    def release(self, block_ids: Sequence[int]) -> None:
        """Give back references taken by `hold`. Raises BlockStateError on one not taken."""
        ...

    def ref_count(self, block_id: int) -> int:
        """References to a device block; 0 if free."""
        ...

    def get_physical_blocks(self, request_id: str) -> list[int]:
        """The request's block table; [] if it has none. Callers only read it.

        `allocate` and `share` grow the same list object; any other change makes a new one.
        """
        ...

    def replace(self, request_id: str, index: int, block_ids: Sequence[int]) -> None:
        """Point len(block_ids) entries of a table, from `index` on, at other blocks that are in use.

        All of these entries exist. The other entries stay, and the references to the old blocks are
        dropped. Raises BlockStateError, with nothing changed, if one of the new blocks is free.
        """
        ...

    def copy_on_write(self, request_id: str, index: int) -> tuple[int, int] | None:
        """Make entry `index` of a table safe to write.

        None if the request is its only holder. Otherwise it gets a fresh block in the table and
        returns (old, fresh), which the caller must have copied before anything is written.
        Raises OutOfBlocksError, with nothing changed, if none is free.
        """
        ...

    def swap_out(self, request_id: str) -> list[tuple[int, int]]:
        """Move a table to the host pool: returns (device, host) for each block, in order.

        The device references are dropped. Raises OutOfBlocksError, with nothing changed, if the host
        pool cannot take it.
        """
        ...

    def swap_in(self, request_id: str, shared: Sequence[int] = ()) -> list[tuple[int, int]]:
        """Bring a swapped-out table back: returns (host, device) for each block to copy.

        `shared` are held device blocks that already have the content of the first len(shared) entries:
        they are referenced, not copied. Raises OutOfBlocksError if the device pool has no room for the
        rest, and BlockStateError if one of `shared` is free, with nothing changed; where both hold,
        either.
        """
        ...

    def discard_swapped(self, request_id: str) -> None:
        """Free the host blocks of a swapped-out request."""
        ...

    def num_swapped_blocks(self, request_id: str) -> int:
        """Length of the request's table in the host pool; 0 if it is not swapped out."""
        ...

    def check(self) -> None:
        """Verify every invariant; raises InvariantError naming the block and what is wrong."""
        ...


# ANCHOR_END: block_manager


# ANCHOR: kv_pool
class KVPool(Protocol):
    """Lab 3. The memory: for each layer, K and V as [num_blocks, block_size, kv_heads, head_dim].

    Slot s is row s % block_size of block s // block_size. A call costs the tokens or blocks that it
    names, however large the pool is; `write` and `gather` touch the layer that they are given alone.
    """

    num_blocks: int
    block_size: int

    def slot_mapping(self, block_tables: "Tensor", rows: "Tensor", positions: "Tensor") -> "Tensor":
        """The slot of each token, [T] int64, on the tables' device and without a loop over tokens.

        block_tables: [n, m] int32. rows, positions: [T] int64, the row of a token's table and the
        token's position in its sequence.
        """
        ...

    def write(self, layer: int, k: "Tensor", v: "Tensor", slot_mapping: "Tensor") -> None:
        """Store k, v [T, kv_heads, head_dim] in the slots [T] (int64)."""
        ...

    def gather(self, layer: int, block_tables: "Tensor") -> "tuple[Tensor, Tensor]":
        """K and V of the blocks [n, m] (int) as [n, m * block_size, kv_heads, head_dim], copies."""
        ...

    def blocks(self, layer: int) -> "tuple[Tensor, Tensor]":
        """K and V of a layer as they lie in memory (kernels read these in place)."""
        ...

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy block src to block dst for each (src, dst), in every layer."""
        ...

    def swap_out(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy device blocks to host blocks for each (device, host), in every layer."""
        ...

    def swap_in(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy host blocks to device blocks for each (host, device), in every layer."""
        ...


# ANCHOR_END: kv_pool


# ANCHOR: kv_cache_manager
class KVCacheManager(Protocol):
    """Lab 3. Which request uses which blocks: tables, prefix reuse, eviction, swap, watermark.

    It is given a BlockManager and a RadixTree (None turns prefix caching off).

    A call costs the blocks of its own request that it looks up, takes or gives back, whatever else is
    cached. `allocate` for another token and a `commit` that files nothing cost the same at any length.
    """

    block_size: int

    def cached_tokens(self, request: "Request") -> int:
        """How many leading tokens a new table for this request would find cached, or 0 for one that may
        not use them (`Request.may_reuse_prefix`). Changes nothing."""
        ...

    def is_pending(self, request: "Request") -> bool:
        """Whether a step is about to compute the next block that this request lacks: a chunk of more
        than one known token (drafts are not known) that fills it has room (`allocate`), and is neither
        filed (`commit`) nor given up.

        Waiting then saves computing it twice, unless the request may not reuse a prefix. Blocks that a
        running request fills token by token are not waited for. A fork waits for as long as its sibling
        runs and has not settled the prompt.
        """
        ...

    def allocate(self, request: "Request", num_tokens: int, *, keep_free: int = 0) -> bool:
        """Make room for the K and V of the request's first `num_tokens` tokens.

        Evicts unreferenced cached blocks as needed. False, with nothing changed, if it cannot, or if
        taking what is missing would leave fewer than `keep_free` blocks free or evictable; a call that
        needs no block is never refused. The request has been admitted.
        A block that others hold is copied before this request writes to it.
        """
        ...

    def admit(self, request: "Request") -> int:
        """Start the request's table with the cached prefix (or its `fork_of` sibling's prompt blocks).

        One that may not reuse a prefix (`Request.may_reuse_prefix`) computes all of its tokens.
        Sets and returns `num_computed_tokens`: at most num_tokens - 1, since a step must compute at
        least one token to have logits. `num_cached_tokens` gets the same number, a fork's too, unless
        the request was preempted. `free` takes back the table and the lock, not the counts.
        """
        ...

    def commit(self, request: "Request") -> None:
        """File the full blocks of the request's settled tokens (`num_settled_tokens`) in the tree, so
        that others find them.

        Where the tree has that prefix already, the table then points to the tree's blocks and the
        duplicates are freed.
        """
        ...

    def free(self, request: "Request", *, keep: bool = True) -> None:
        """Drop the table and whatever the request has in the host pool; harmless without either.

        Commits first unless `keep` is False (the request failed, its K and V are not to be trusted).
        """
        ...

    def swap_out(self, request: "Request") -> bool:
        """Move the table to the host pool. False, with nothing changed, if that has no room."""
        ...

    def swap_in(self, request: "Request", num_tokens: int, *, keep_free: int = 0) -> bool:
        """Bring the table back and make room for the first `num_tokens` tokens, as `allocate` does.

        Blocks that the tree has by now need no copy: at most num_computed_tokens // block_size of them
        are shared. A table that is longer than `num_tokens` asks for comes back whole. False, with
        nothing changed, if the device pool has no room.
        """
        ...

    def block_table(self, request: "Request") -> list[int]:
        """The request's physical blocks (see BlockManager.get_physical_blocks)."""
        ...

    def take_moves(
        self,
    ) -> tuple[list[tuple[int, int]], list[tuple[int, int]], list[tuple[int, int]]]:
        """(swap_out, swap_in, copies) promised since the last call; the plan carries them out."""
        ...

    def reset_prefix_cache(self) -> int:
        """Evict everything that no request uses; returns how many blocks that freed."""
        ...

    @property
    def num_available_blocks(self) -> int:
        """Blocks that are free, or cached and evictable. O(1)."""
        ...

    def stats(self) -> dict[str, int]:
        """Counters: total_blocks, free_blocks, cached_blocks (evictable), used_blocks,
        evicted_blocks (since the start)."""
        ...

    def check(self) -> None:
        """Verify the invariants of tables, tree and blocks together; raises InvariantError."""
        ...


# ANCHOR_END: kv_cache_manager
