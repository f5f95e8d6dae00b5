"""Another design: rows one after the other, each in as many equal pieces as a vector has room for.

The reference has a tile of rows, of the power of two that holds a row. Here a row of 300 is one of 16
pieces of 32: squares are summed piece by piece, down the tile and then across.
"""

import triton
import triton.language as tl


@triton.jit
def scaled(values, gain, eps, D, dtype: tl.constexpr):
    """values, gain [PIECES, WIDTH] of one row, float32: normed, rounded, weighted, rounded."""
    squares = tl.sum(tl.sum(values * values, axis=0), axis=0)
    root = tl.sqrt(squares / D + eps)
    normed = (values / root).to(dtype).to(tl.float32)
    return (normed * gain).to(dtype)


@triton.jit
def rms_norm_kernel(
    x,
    weight,
    out,
    token_stride,
    head_stride,
    num_rows,
    heads,
    eps,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    STAGES: tl.constexpr,
):
    """out[row] = x[row] normed. Program p has rows p * ROWS and so on."""
    WIDTH: tl.constexpr = BLOCK if BLOCK < 32 else 32
    columns = tl.arange(0, BLOCK // WIDTH)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    inside = columns < D
    gain = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    first = tl.program_id(0).to(tl.int64) * ROWS
    for row in range(first, tl.minimum(first + ROWS, num_rows)):
        start = x + row // heads * token_stride + row % heads * head_stride
        values = tl.load(start + columns, mask=inside, other=0.0).to(tl.float32)
        normed = scaled(values, gain, eps, D, out.dtype.element_ty)
        tl.store(out + row * D + columns, normed, mask=inside)


@triton.jit
def add_rms_norm_kernel(
    x,
    residual,
    weight,
    x_stride,
    residual_stride,
    num_rows,
    eps,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    STAGES: tl.constexpr,
):
    """residual[row] += x[row], rounded; x[row] = that sum, normed."""
    WIDTH: tl.constexpr = BLOCK if BLOCK < 32 else 32
    columns = tl.arange(0, BLOCK // WIDTH)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    inside = columns < D
    gain = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    first = tl.program_id(0).to(tl.int64) * ROWS
    for row in range(first, tl.minimum(first + ROWS, num_rows)):
        onto = residual + row * residual_stride + columns
        into = x + row * x_stride + columns
        total = tl.load(onto, mask=inside, other=0.0).to(tl.float32)
        total += tl.load(into, mask=inside, other=0.0).to(tl.float32)
        rounded = total.to(residual.dtype.element_ty)
        tl.store(onto, rounded, mask=inside)
        normed = scaled(rounded.to(tl.float32), gain, eps, D, x.dtype.element_ty)
        tl.store(into, normed, mask=inside)


@triton.jit
def long_rms_norm_kernel(
    x,
    residual,
    weight,
    out,
    token_stride,
    head_stride,
    residual_stride,
    out_stride,
    heads,
    eps,
    D,
    ADD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One row a program, BLOCK columns at a time: first the sum of squares, then the result.

    For rows that registers cannot hold. The second reading mostly comes from the L2 cache. With ADD the
    sum goes to residual, and is what is read again. Row r of out begins at r * out_stride.
    """
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    at_x = x + row // heads * token_stride + row % heads * head_stride
    at_residual = residual + row * residual_stride
    at_out = out + row * out_stride
    squares = tl.zeros([BLOCK], tl.float32)
    for start in range(0, D, BLOCK):
        mask = start + columns < D
        values = tl.load(at_x + start + columns, mask=mask, other=0.0).to(tl.float32)
        if ADD:
            values += tl.load(at_residual + start + columns, mask=mask, other=0.0).to(tl.float32)
            rounded = values.to(residual.dtype.element_ty)
            tl.store(at_residual + start + columns, rounded, mask=mask)
            values = rounded.to(tl.float32)
        squares += values * values
    scale = tl.rsqrt(tl.sum(squares) / D + eps)
    # Each thread reads back only what it wrote itself: no barrier is needed.
    source = at_residual if ADD else at_x
    for start in range(0, D, BLOCK):
        mask = start + columns < D
        values = tl.load(source + start + columns, mask=mask, other=0.0).to(tl.float32)
        gain = tl.load(weight + start + columns, mask=mask, other=0.0).to(tl.float32)
        normed = (values * scale).to(out.dtype.element_ty).to(tl.float32) * gain
        tl.store(at_out + start + columns, normed.to(out.dtype.element_ty), mask=mask)
