"""Another design: a grid of two numbers, a program for four rows of a tile, SiLU by the sigmoid.

The reference numbers its programs through, and each has a tile of one row.
"""

import triton
import triton.language as tl


@triton.jit
def gated(gate, up, dtype: tl.constexpr):
    """silu(gate) * up, the first factor rounded."""
    gate = gate.to(tl.float32)
    return ((gate * tl.sigmoid(gate)).to(dtype).to(tl.float32) * up.to(tl.float32)).to(dtype)


@triton.jit
def silu_rows_kernel(x, out, row_stride, rows, D, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Program (tile of the columns, ROWS rows)."""
    first = tl.program_id(0) * BLOCK
    row = (tl.program_id(1).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    column = (first + tl.arange(0, BLOCK))[None, :]
    inside = (row < rows) & (column < D)
    gate = tl.load(x + row * row_stride + column, mask=inside, other=0.0)
    up = tl.load(x + D + row * row_stride + column, mask=inside, other=0.0)
    tl.store(out + row * D + column, gated(gate, up, out.dtype.element_ty), mask=inside)
