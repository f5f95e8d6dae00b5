"""SiLU and multiply: the gate of a feed-forward layer (Shazeer 2020)."""

import triton
import triton.language as tl


# ANCHOR: silu_mul_kernel
@triton.jit
def silu_mul_kernel(x, out, row_stride, D, BLOCK: tl.constexpr):
    """out[row] = silu(x[row, :D]) * x[row, D:]. out: contiguous.

    A row takes cdiv(D, BLOCK) programs, one after the other: programs start in the order of their
    numbers, and neighbours in time should be neighbours in memory.

    silu(g) = g / (1 + exp(-g)), in float32 and rounded to x's dtype before the product, as in lab 2.
    """
    # BEGIN SOLUTION 9.3
    tiles = tl.cdiv(D, BLOCK)
    row = (tl.program_id(0) // tiles).to(tl.int64)
    columns = tl.program_id(0) % tiles * BLOCK + tl.arange(0, BLOCK)
    mask = columns < D
    gates = x + row * row_stride + columns
    gate = tl.load(gates, mask=mask).to(tl.float32)
    up = tl.load(gates + D, mask=mask).to(tl.float32)
    opened = (gate / (1.0 + tl.exp(-gate))).to(x.dtype.element_ty)
    tl.store(out + row * D + columns, (opened * up).to(x.dtype.element_ty), mask=mask)
    # END SOLUTION


# ANCHOR_END: silu_mul_kernel
