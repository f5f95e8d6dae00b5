"""Rotary embedding (Su et al. 2021) of queries and keys, alone and on the keys' way to the pool.

A program has heads of one token, and reads the token's angles once for those of q and once for k's.
"""

import triton
import triton.language as tl


# ANCHOR: turn_heads
@triton.jit
def turn_heads(
    source,
    target,
    cos,
    sin,
    first_head,
    heads,
    source_stride,
    target_stride,
    HALF: tl.constexpr,
    BLOCK_HALF: tl.constexpr,
    HEADS: tl.constexpr,
):
    """Turn the heads from first_head on, at most HEADS of them, of one token.

    source, target: where the token's head 0 begins; the strides lead from one head to the next. They
    may be the same. cos, sin: where the HALF angles of the token begin. Dimension i of a head is
    turned together with i + HALF, in float32; those from 2 * HALF on are neither read nor written.
    """
    # BEGIN SOLUTION 9.4
    rows = first_head + tl.arange(0, HEADS)
    pairs = tl.arange(0, BLOCK_HALF)
    c = tl.load(cos + pairs, mask=pairs < HALF)[None, :]
    s = tl.load(sin + pairs, mask=pairs < HALF)[None, :]
    mask = (rows < heads)[:, None] & (pairs < HALF)[None, :]
    offsets = rows[:, None] * source_stride + pairs[None, :]
    first = tl.load(source + offsets, mask=mask)
    second = tl.load(source + offsets + HALF, mask=mask)
    dtype = target.dtype.element_ty  # the angles are float32, and so are the products
    offsets = rows[:, None] * target_stride + pairs[None, :]
    tl.store(target + offsets, (first * c - second * s).to(dtype), mask=mask)
    tl.store(target + offsets + HALF, (second * c + first * s).to(dtype), mask=mask)
    # END SOLUTION


# ANCHOR_END: turn_heads


# ANCHOR: rope_kernel
@triton.jit
def rope_kernel(
    q,
    k,
    positions,
    cos,
    sin,
    q_token_stride,
    q_head_stride,
    k_token_stride,
    k_head_stride,
    heads,
    kv_heads,
    HALF: tl.constexpr,
    BLOCK_HALF: tl.constexpr,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
):
    """Turn q [T, heads, d] and k [T, kv_heads, d] in place, in one launch.

    Program (token, tile) has the heads of q from tile * HEADS on and those of k from tile * KV_HEADS on.
    cos, sin: [max_positions, HALF], contiguous.
    """
    # BEGIN SOLUTION 9.4
    token = tl.program_id(0).to(tl.int64)
    tile = tl.program_id(1)
    row = tl.load(positions + token) * HALF
    q += token * q_token_stride
    k += token * k_token_stride
    turn_heads(q, q, cos + row, sin + row, tile * HEADS, heads,
               q_head_stride, q_head_stride, HALF, BLOCK_HALF, HEADS)  # fmt: skip
    turn_heads(k, k, cos + row, sin + row, tile * KV_HEADS, kv_heads,
               k_head_stride, k_head_stride, HALF, BLOCK_HALF, KV_HEADS)  # fmt: skip
    # END SOLUTION


# ANCHOR_END: rope_kernel


# ANCHOR: copy_heads
@triton.jit
def copy_heads(
    source,
    target,
    first_head,
    heads,
    source_stride,
    target_stride,
    FIRST: tl.constexpr,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
    HEADS: tl.constexpr,
):
    """Copy dimensions FIRST to D, D not among them, of the heads from first_head on, at most HEADS.

    source, target: where the token's head 0 begins. BLOCK: at least D - FIRST.
    """
    rows = first_head + tl.arange(0, HEADS)
    columns = FIRST + tl.arange(0, BLOCK)
    mask = (rows < heads)[:, None] & (columns < D)[None, :]
    values = tl.load(source + rows[:, None] * source_stride + columns[None, :], mask=mask)
    tl.store(target + rows[:, None] * target_stride + columns[None, :], values, mask=mask)


# ANCHOR_END: copy_heads


# ANCHOR: rope_and_store_kernel
@triton.jit
def rope_and_store_kernel(
    q,
    k,
    v,
    positions,
    cos,
    sin,
    keys,
    values,
    slots,
    q_token_stride,
    q_head_stride,
    k_token_stride,
    k_head_stride,
    v_token_stride,
    v_head_stride,
    block_stride,
    slot_stride,
    pool_head_stride,
    block_size,
    heads,
    kv_heads,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    REST: tl.constexpr,
    HALF: tl.constexpr,
    BLOCK_HALF: tl.constexpr,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
):
    """Turn q in place; turn k on its way to its slot; copy v to its slot.

    Programs as in `rope_kernel`; heads of v go with those of k. keys, values: the pool [num_blocks,
    block_size, kv_heads, D], both with the same strides. A negative slot stores nothing. REST: a power
    of two that holds the D - 2 * HALF dimensions that do not turn, 0 for none.
    """
    # BEGIN SOLUTION 9.6
    token = tl.program_id(0).to(tl.int64)
    tile = tl.program_id(1)
    row = tl.load(positions + token) * HALF
    q += token * q_token_stride
    turn_heads(q, q, cos + row, sin + row, tile * HEADS, heads,
               q_head_stride, q_head_stride, HALF, BLOCK_HALF, HEADS)  # fmt: skip
    slot = tl.load(slots + token)
    if slot >= 0:
        first = tile * KV_HEADS
        k += token * k_token_stride
        v += token * v_token_stride
        place = slot // block_size * block_stride + slot % block_size * slot_stride
        turn_heads(k, keys + place, cos + row, sin + row, first, kv_heads,
                   k_head_stride, pool_head_stride, HALF, BLOCK_HALF, KV_HEADS)  # fmt: skip
        if REST > 0:
            copy_heads(k, keys + place, first, kv_heads,
                       k_head_stride, pool_head_stride, 2 * HALF, D, REST, KV_HEADS)  # fmt: skip
        copy_heads(v, values + place, first, kv_heads,
                   v_head_stride, pool_head_stride, 0, D, BLOCK_D, KV_HEADS)  # fmt: skip
    # END SOLUTION


# ANCHOR_END: rope_and_store_kernel
