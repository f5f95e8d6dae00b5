# Lab 9, your part: task 9.5. The rest is given.
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
    # TODO 9.5: your code here (the reference: 10 lines).
    raise NotImplementedError(
        "triton_ops task 9.5: not implemented yet; see chapter Kernels in Triton"
    )


# ANCHOR_END: store_kv_kernel
