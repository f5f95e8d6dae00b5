"""RMSNorm (Zhang and Sennrich 2019), alone and with the addition before it.

A row that fits is read once, kept in registers for its two uses and written once: no kernel can move
fewer bytes. Rows above `launch.LONGEST_ROW` are read twice, by `long_rms_norm_kernel`.
"""

import triton
import triton.language as tl


# ANCHOR: normalise
@triton.jit
def normalise(values, weight, eps, D, dtype):
    """values [ROWS, BLOCK] float32, 0 from column D on, over the root mean square of each row.

    The quotient is rounded to `dtype` before it meets `weight` [BLOCK], as in lab 2: an engine gives the
    same tokens whichever of the two it runs on. Returns [ROWS, BLOCK] of `dtype`.
    """
    # BEGIN SOLUTION 9.1
    variance = tl.sum(values * values, axis=1) / D
    normed = (values * tl.rsqrt(variance + eps)[:, None]).to(dtype)
    return (normed.to(tl.float32) * weight[None, :].to(tl.float32)).to(dtype)
    # END SOLUTION


# ANCHOR_END: normalise


# ANCHOR: rms_norm_kernel
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
    """out[row] = x[row] normed, for rows of D numbers. BLOCK: the power of two from D on.

    x is seen as [tokens, heads, D]: row r is head r % heads of token r // heads, so that queries may be
    normed where they lie, between keys and values. out is contiguous. Program p works on the tiles
    p, p + programs, ... of ROWS rows each.
    """
    # BEGIN SOLUTION 9.1
    columns = tl.arange(0, BLOCK)
    inside = columns < D
    scale = tl.load(weight + columns, mask=inside)
    for tile in tl.range(
        tl.program_id(0), tl.cdiv(num_rows, ROWS), tl.num_programs(0), num_stages=STAGES
    ):
        rows = (tile * ROWS + tl.arange(0, ROWS)).to(tl.int64)
        mask = (rows < num_rows)[:, None] & inside[None, :]
        starts = rows // heads * token_stride + rows % heads * head_stride
        values = tl.load(x + starts[:, None] + columns[None, :], mask=mask, other=0.0)
        normed = normalise(values.to(tl.float32), scale, eps, D, x.dtype.element_ty)
        tl.store(out + rows[:, None] * D + columns[None, :], normed, mask=mask)
    # END SOLUTION


# ANCHOR_END: rms_norm_kernel


# ANCHOR: add_rms_norm_kernel
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
    """residual[row] += x[row], rounded; x[row] = that sum, normed. Tiles as in `rms_norm_kernel`."""
    # BEGIN SOLUTION 9.2
    columns = tl.arange(0, BLOCK)
    inside = columns < D
    scale = tl.load(weight + columns, mask=inside)
    for tile in tl.range(
        tl.program_id(0), tl.cdiv(num_rows, ROWS), tl.num_programs(0), num_stages=STAGES
    ):
        rows = (tile * ROWS + tl.arange(0, ROWS)).to(tl.int64)
        mask = (rows < num_rows)[:, None] & inside[None, :]
        at_x = x + rows[:, None] * x_stride + columns[None, :]
        at_residual = residual + rows[:, None] * residual_stride + columns[None, :]
        added = tl.load(at_x, mask=mask, other=0.0).to(tl.float32)
        total = added + tl.load(at_residual, mask=mask, other=0.0)
        total = total.to(residual.dtype.element_ty)
        tl.store(at_residual, total, mask=mask)
        normed = normalise(total.to(tl.float32), scale, eps, D, x.dtype.element_ty)
        tl.store(at_x, normed, mask=mask)
    # END SOLUTION


# ANCHOR_END: add_rms_norm_kernel


# ANCHOR: long_rms_norm_kernel
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


# ANCHOR_END: long_rms_norm_kernel
