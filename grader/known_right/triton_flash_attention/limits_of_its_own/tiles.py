"""Another design: the helpers have the reference's names, and other parameters.

`visible_keys` is asked with a tile of queries, `is_visible` with how far a key lies behind a query, and
`is_kept` with the numbers of entries.
"""

import triton
import triton.language as tl


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


@triton.jit
def visible_keys(
    start_m, tq, tk, window, WINDOW: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    """(begin, full_begin, full_end, end) of the walk over keys of the query tile at start_m."""
    first = start_m + tk - tq
    last = tl.minimum(start_m + BLOCK_M, tq) - 1 + tk - tq
    end = tl.minimum(tk, last + 1)
    whole = tl.maximum(first + 1, 0) // BLOCK_N * BLOCK_N
    begin, full_begin = 0, 0
    if WINDOW:
        begin = tl.maximum(first - window + 1, 0) // BLOCK_N * BLOCK_N
        whole = tl.maximum(whole, begin)
        full_begin = tl.cdiv(tl.maximum(last - window + 1, 0), BLOCK_N) * BLOCK_N
        full_begin = tl.minimum(full_begin, whole)
    return begin, full_begin, whole, end


@triton.jit
def is_visible(behind, exists, window, CAUSAL: tl.constexpr, WINDOW: tl.constexpr):
    """behind: how many positions each key lies behind each query; exists: whether it does."""
    seen = exists & (behind == behind)
    if CAUSAL:
        seen = seen & (behind >= 0)
    if WINDOW:
        seen = seen & (behind < window)
    return seen


@triton.jit
def key_head_of(head, GROUP: tl.constexpr):
    """The key head that query head `head` reads; GROUP query heads in a row share one."""
    key_head = head
    if GROUP > 1:
        key_head = head // GROUP
    return key_head


@triton.jit
def is_kept(block_mask, row, column, mask_columns):
    """Whether the block mask keeps this entry."""
    return tl.load(block_mask + row * mask_columns + column) > 0
