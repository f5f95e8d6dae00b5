"""Another design: numbers of all tokens in one row, each with its token, slot and place by division.

The reference has a program for each tile of a token, and leaves where its slot is negative.
"""

import triton
import triton.language as tl


@triton.jit
def store_all_kernel(
    k,
    v,
    keys,
    values,
    slots,
    k_stride,
    v_stride,
    key_block,
    key_slot,
    value_block,
    value_slot,
    block_size,
    count,
    SIZE,
    BLOCK: tl.constexpr,
):
    """Copy `count` = tokens * SIZE numbers of k and of v, BLOCK a program, the last programs first."""
    program = tl.num_programs(0) - 1 - tl.program_id(0)
    flat = tl.cast(program, tl.int64) * BLOCK + tl.arange(0, BLOCK)
    token, column = flat // SIZE, flat % SIZE
    slot = tl.load(slots + token, mask=flat < count, other=-1)
    is_real = slot >= 0
    slot = tl.where(is_real, slot, 0)
    block, row = slot // block_size, slot % block_size
    at = v + token * v_stride + column
    value = tl.load(at, mask=is_real)
    tl.store(values + block * value_block + row * value_slot + column, value, mask=is_real)
    key = tl.load(k + token * k_stride + column, mask=is_real)
    tl.store(keys + block * key_block + row * key_slot + column, key, mask=is_real)
