"""Another design: of a token's programs some have heads of q, others of k, others of v.

The reference gives each of its programs some heads of all three.
"""

import triton
import triton.language as tl


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
    token = tl.program_id(0).to(tl.int64)
    row = tl.load(positions + token) * HALF
    of_q = tl.cdiv(heads, HEADS)
    if tl.program_id(1) < of_q:
        q += token * q_token_stride
        turn_heads(q, q, cos + row, sin + row, tl.program_id(1) * HEADS, heads,
                   q_head_stride, q_head_stride, HALF, BLOCK_HALF, HEADS)  # fmt: skip
    else:
        first = (tl.program_id(1) - of_q) * KV_HEADS
        k += token * k_token_stride
        turn_heads(k, k, cos + row, sin + row, first, kv_heads,
                   k_head_stride, k_head_stride, HALF, BLOCK_HALF, KV_HEADS)  # fmt: skip


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
    token = tl.program_id(0).to(tl.int64)
    row = tl.load(positions + token) * HALF
    of_q, of_k = tl.cdiv(heads, HEADS), tl.cdiv(kv_heads, KV_HEADS)
    role = tl.program_id(1)
    if role < of_q:
        q += token * q_token_stride
        turn_heads(q, q, cos + row, sin + row, role * HEADS, heads,
                   q_head_stride, q_head_stride, HALF, BLOCK_HALF, HEADS)  # fmt: skip
    else:
        slot = tl.load(slots + token)
        if slot >= 0:
            place = slot // block_size * block_stride + slot % block_size * slot_stride
            if role < of_q + of_k:
                first = (role - of_q) * KV_HEADS
                k += token * k_token_stride
                turn_heads(k, keys + place, cos + row, sin + row, first, kv_heads,
                           k_head_stride, pool_head_stride, HALF, BLOCK_HALF, KV_HEADS)  # fmt: skip
                if REST > 0:
                    copy_heads(k, keys + place, first, kv_heads, k_head_stride,
                               pool_head_stride, 2 * HALF, D, REST, KV_HEADS)  # fmt: skip
            else:
                first = (role - of_q - of_k) * KV_HEADS
                v += token * v_token_stride
                copy_heads(v, values + place, first, kv_heads,
                           v_head_stride, pool_head_stride, 0, D, BLOCK_D, KV_HEADS)  # fmt: skip
