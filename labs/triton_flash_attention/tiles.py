# Lab 10, your part: tasks 10.2, 10.3, 10.4. The rest is given.
"""What the kernels share: which tiles meet, what a tile hides, and how its rows are read and written.

A query tile is BLOCK_M queries in a row, a key tile BLOCK_N keys. Query j stands at position offset + j
among the keys, with offset = tk - tq: the queries are the last ones.
"""

import triton
import triton.language as tl


# ANCHOR: rows
@triton.jit
def load_rows(
    base,
    stride,
    start,
    length,
    ROWS: tl.constexpr,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    CHECK: tl.constexpr,
):
    """Rows start.. of a matrix [length, D] with this stride, as a tile [ROWS, BLOCK_D].

    Columns from D on are 0, and with CHECK so are the rows from `length` on; without it all are there.
    """
    rows = tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK_D)
    pointers = base + tl.cast(start, tl.int64) * stride + rows[:, None] * stride + columns[None, :]
    inside = columns[None, :] < D
    if CHECK:
        return tl.load(pointers, mask=(start + rows < length)[:, None] & inside, other=0.0)
    elif BLOCK_D > D:
        return tl.load(pointers, mask=inside, other=0.0)
    else:
        return tl.load(pointers)


@triton.jit
def store_rows(
    base,
    stride,
    start,
    length,
    tile,
    ROWS: tl.constexpr,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Write a tile [ROWS, BLOCK_D] where `load_rows` reads it, in the dtype that lies there."""
    rows = tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK_D)
    pointers = base + tl.cast(start, tl.int64) * stride + rows[:, None] * stride + columns[None, :]
    inside = (start + rows < length)[:, None] & (columns[None, :] < D)
    tl.store(pointers, tile.to(base.dtype.element_ty), mask=inside)


# ANCHOR_END: rows


# ANCHOR: visible_keys
@triton.jit
def visible_keys(first, last, tk, window, WINDOW: tl.constexpr, BLOCK_N: tl.constexpr):
    """Which keys a causal query tile visits, whose queries stand at positions first to last.

    first may be negative, and so may last: those queries see nothing. Returns begin <= full_begin <=
    full_end, and end: tiles of BLOCK_N keys that start at begin, begin + BLOCK_N, ... below end hold
    every key that a query of the tile sees, and none of them is without one. Those that start from
    full_begin up to full_end are all that every query sees whole: they need no mask. begin, full_begin
    and full_end are multiples of BLOCK_N.
    """
    # TODO 10.2: your code here (the reference: 10 lines).
    raise NotImplementedError(
        "triton_flash_attention task 10.2: not implemented yet; see chapter FlashAttention in Triton"
    )


# ANCHOR_END: visible_keys


# ANCHOR: is_visible
@triton.jit
def is_visible(positions, keys, tk, window, CAUSAL: tl.constexpr, WINDOW: tl.constexpr):
    """Whether the query at each of `positions` sees each of `keys`; the two broadcast.

    No query sees a key from tk on.
    """
    visible = keys < tk
    if CAUSAL:
        # TODO 10.2: your code here (the reference: 3 lines).
        raise NotImplementedError(
            "triton_flash_attention task 10.2: not implemented yet; see chapter FlashAttention in Triton"
        )
    return visible


# ANCHOR_END: is_visible


# ANCHOR: key_head_of
@triton.jit
def key_head_of(head, GROUP: tl.constexpr):
    """The key head that query head `head` reads; GROUP query heads in a row share one."""
    key_head = head
    if GROUP > 1:
        # TODO 10.3: your code here (the reference: 1 line).
        raise NotImplementedError(
            "triton_flash_attention task 10.3: not implemented yet; see chapter FlashAttention in Triton"
        )
    return key_head


# ANCHOR_END: key_head_of


# ANCHOR: is_kept
@triton.jit
def is_kept(block_mask, start_m, start_n, mask_columns, MASK_BLOCK: tl.constexpr):
    """Whether the block mask [.., mask_columns] keeps the tile at query start_m and key start_n.

    The tile lies in one entry of the mask, which covers MASK_BLOCK queries and keys.
    """
    # TODO 10.4: your code here (the reference: 3 lines).
    raise NotImplementedError(
        "triton_flash_attention task 10.4: not implemented yet; see chapter FlashAttention in Triton"
    )


# ANCHOR_END: is_kept
