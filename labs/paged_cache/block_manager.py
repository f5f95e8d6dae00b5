# Lab 3, your part (edition 2): tasks 3.1, 3.2, 3.3. The rest is given.
"""Which request holds which block of the device pool and of the host pool.

Paged memory for keys and values (Kwon et al. 2023, PagedAttention). This file moves no data: it hands
out block numbers and says which blocks the caller must copy. What the grader compares it with
(`solutions/paged_cache/naive.py`) does the same by scanning lists.
"""

from collections import Counter
from collections.abc import Sequence

from yaie.core.errors import BlockStateError, InvariantError, OutOfBlocksError

Pairs = list[tuple[int, int]]


class BlockManager:
    """See `yaie.core.contracts.BlockManager`. Every call is O(blocks it touches)."""

    def __init__(self, num_blocks: int, block_size: int, num_host_blocks: int = 0) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.num_host_blocks = num_host_blocks
        self._free = list(reversed(range(num_blocks)))
        self._free_host = list(reversed(range(num_host_blocks)))
        self._refs = [0] * num_blocks
        self._holds = [0] * num_blocks  # the part of _refs that is in no table
        self._tables: dict[str, list[int]] = {}
        self._host_tables: dict[str, list[int]] = {}

    @property
    def num_free(self) -> int:
        """Free device blocks."""
        return len(self._free)

    @property
    def num_free_host(self) -> int:
        """Free host blocks."""
        return len(self._free_host)

    # ANCHOR: allocate
    def allocate(self, request_id: str, num_blocks: int) -> list[int]:
        """Append `num_blocks` fresh blocks to the request's table (made if it has none); returns them.

        All or nothing: raises OutOfBlocksError, with nothing changed, if too few are free.
        """
        # TODO 3.1: your code here (the reference: 3 lines).
        raise NotImplementedError(
            "paged_cache task 3.1: not implemented yet; see chapter The paged KV cache"
        )

    def _take(self, num_blocks: int) -> list[int]:
        """Remove blocks from the free list and give each one reference."""
        # TODO 3.1: your code here (the reference: 6 lines).
        raise NotImplementedError(
            "paged_cache task 3.1: not implemented yet; see chapter The paged KV cache"
        )

    # ANCHOR_END: allocate

    # ANCHOR: free
    def free(self, request_id: str) -> None:
        """Drop the request's table and its references; BlockStateError if it has no table."""
        # TODO 3.1: your code here (the reference: 3 lines).
        raise NotImplementedError(
            "paged_cache task 3.1: not implemented yet; see chapter The paged KV cache"
        )

    def _drop(self, block_ids: Sequence[int]) -> None:
        """Take one reference from each block; those without any become free."""
        # TODO 3.1: your code here (the reference: 4 lines).
        raise NotImplementedError(
            "paged_cache task 3.1: not implemented yet; see chapter The paged KV cache"
        )

    def get_physical_blocks(self, request_id: str) -> list[int]:
        """The request's block table; [] if it has none. Callers only read it."""
        # TODO 3.1: your code here (the reference: 1 line).
        raise NotImplementedError(
            "paged_cache task 3.1: not implemented yet; see chapter The paged KV cache"
        )

    # ANCHOR_END: free

    # ANCHOR: share
    def share(self, request_id: str, block_ids: Sequence[int]) -> None:
        """Append held blocks to the request's table, one more reference each.

        The table is made if it has none, also to share no block. Raises BlockStateError, with nothing
        changed, if one of the blocks is free.
        """
        # TODO 3.2: your code here (the reference: 2 lines).
        raise NotImplementedError(
            "paged_cache task 3.2: not implemented yet; see chapter The paged KV cache"
        )

    def hold(self, block_ids: Sequence[int]) -> None:
        """Add a reference that is in no table.

        Raises BlockStateError, with nothing changed, if one of the blocks is free.
        """
        # TODO 3.2: your code here (the reference: 3 lines).
        raise NotImplementedError(
            "paged_cache task 3.2: not implemented yet; see chapter The paged KV cache"
        )

    def release(self, block_ids: Sequence[int]) -> None:
        """Give back references taken by `hold`.

        Raises BlockStateError, with nothing changed, if a block is not held, or not that often.
        """
        # TODO 3.2: your code here (the reference: 6 lines).
        raise NotImplementedError(
            "paged_cache task 3.2: not implemented yet; see chapter The paged KV cache"
        )

    def _add_references(self, block_ids: Sequence[int]) -> None:
        """One more reference for each block, after seeing that none of them is free."""
        # TODO 3.2: your code here (the reference: 3 lines).
        raise NotImplementedError(
            "paged_cache task 3.2: not implemented yet; see chapter The paged KV cache"
        )

    def _refuse_free(self, block_ids: Sequence[int]) -> None:
        """Raise BlockStateError if one of the blocks is free."""
        # TODO 3.2: your code here (the reference: 3 lines).
        raise NotImplementedError(
            "paged_cache task 3.2: not implemented yet; see chapter The paged KV cache"
        )

    def ref_count(self, block_id: int) -> int:
        """References to a device block; 0 if free."""
        return self._refs[block_id]

    def replace(self, request_id: str, index: int, block_ids: Sequence[int]) -> None:
        """Point len(block_ids) entries of a table, from `index` on, at other blocks that are in use.

        They all exist: index + len(block_ids) is at most the table's length. The references to the old
        blocks are dropped. The table is a new list afterwards. Raises BlockStateError, with nothing
        changed, if one of the new blocks is free.
        """
        # TODO 3.2: your code here (the reference: 6 lines).
        raise NotImplementedError(
            "paged_cache task 3.2: not implemented yet; see chapter The paged KV cache"
        )

    # ANCHOR_END: share

    # ANCHOR: copy_on_write
    def copy_on_write(self, request_id: str, index: int) -> tuple[int, int] | None:
        """Make entry `index` of a table safe to write.

        None if the request is its only holder, else (old, fresh): the caller copies old to fresh before
        anything is written. Raises OutOfBlocksError, with nothing changed, if no block is free.
        """
        # TODO 3.3: your code here (the reference: 7 lines).
        raise NotImplementedError(
            "paged_cache task 3.3: not implemented yet; see chapter The paged KV cache"
        )

    # ANCHOR_END: copy_on_write

    # ANCHOR: swap
    def swap_out(self, request_id: str) -> Pairs:
        """Move a table to the host pool; returns (device, host) pairs, in order.

        Raises OutOfBlocksError, with nothing changed, if the host pool cannot take it.
        """
        # TODO 3.3: your code here (the reference: 7 lines).
        raise NotImplementedError(
            "paged_cache task 3.3: not implemented yet; see chapter The paged KV cache"
        )

    def swap_in(self, request_id: str, shared: Sequence[int] = ()) -> Pairs:
        """Bring a table back; returns (host, device) for each block to copy, in order.

        `shared` are held device blocks with the content of the first len(shared) entries. Raises
        OutOfBlocksError if the device pool has no room for the rest, BlockStateError if one of `shared`
        is free, with nothing changed; where both hold, either.
        """
        # TODO 3.3: your code here (the reference: 7 lines).
        raise NotImplementedError(
            "paged_cache task 3.3: not implemented yet; see chapter The paged KV cache"
        )

    def discard_swapped(self, request_id: str) -> None:
        """Free the host blocks of a swapped-out request."""
        # TODO 3.3: your code here (the reference: 1 line).
        raise NotImplementedError(
            "paged_cache task 3.3: not implemented yet; see chapter The paged KV cache"
        )

    def num_swapped_blocks(self, request_id: str) -> int:
        """Length of the request's table in the host pool; 0 if it is not swapped out."""
        return len(self._host_tables.get(request_id, ()))

    # ANCHOR_END: swap

    # ANCHOR: check
    def check(self) -> None:
        """Raise InvariantError unless every block is accounted for.

        References are exactly the table entries plus the holds; a block is on the free list, once, if
        and only if it has none; and a host block is free or in one host table.
        """
        expected = list(self._holds)
        for table in self._tables.values():
            for block in table:
                expected[block] += 1
        for block, (refs, wanted) in enumerate(zip(self._refs, expected, strict=True)):
            if refs != wanted:
                raise InvariantError(f"block {block} counts {refs} references but has {wanted}")
        unheld = {block for block, refs in enumerate(self._refs) if refs == 0}
        _check_free_list("device", self._free, unheld)
        in_host_tables = [block for table in self._host_tables.values() for block in table]
        if len(in_host_tables) != len(set(in_host_tables)):
            raise InvariantError("a host block is in two tables")
        _check_free_list(
            "host", self._free_host, set(range(self.num_host_blocks)) - set(in_host_tables)
        )

    # ANCHOR_END: check


def _check_free_list(pool: str, free: list[int], unheld: set[int]) -> None:
    if len(free) != len(set(free)):
        raise InvariantError(f"a {pool} block is on the free list twice")
    if leaked := unheld - set(free):
        raise InvariantError(f"{pool} blocks {sorted(leaked)} leaked: neither held nor free")
    if taken := set(free) - unheld:
        raise InvariantError(f"{pool} blocks {sorted(taken)} are free and in use at once")
