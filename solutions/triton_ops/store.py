"""Keys and values on their way to the pool, where nothing turns them."""

import triton
import triton.language as tl


# ANCHOR: store_kv_kernel
@triton.jit
def store_kv_kernel(
    k,
    v,
    keys,
    values,
    slots,
    k_token_stride,
    v_token_stride,
    block_stride,
    slot_stride,
    block_size,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Copy row t of k and of v, SIZE numbers each, to slot slots[t] of keys and of values.

    Program (token, tile of BLOCK numbers). Slot s is row s % block_size of block s // block_size; a
    negative slot stores nothing. keys and values have the same strides.
    """
    # BEGIN SOLUTION 9.5
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + token)
    if slot >= 0:
        columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        mask = columns < SIZE
        place = slot // block_size * block_stride + slot % block_size * slot_stride + columns
        key = tl.load(k + token * k_token_stride + columns, mask=mask)
        value = tl.load(v + token * v_token_stride + columns, mask=mask)
        tl.store(keys + place, key, mask=mask)
        tl.store(values + place, value, mask=mask)
    # END SOLUTION


# ANCHOR_END: store_kv_kernel
