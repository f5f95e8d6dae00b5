"""The kernels. y [rows, N] = x [rows, K] @ weight [N, K].T, for few rows.

    row_kernel    for one or two rows: all weights of a program in registers, sums on CUDA cores
    tile_kernel   for more: tiles through shared memory, sums on tensor cores
    norm_kernel   RMSNorm of x, where each program of tile_kernel would have to repeat it

Rounded as separate operations round: behind the norm's quotient, its weight, the product, the gate and
the sum. EARLY: launched while the kernel in front still runs (programmatic dependent launch, from
Hopper on). Until `gdc_wait` a program may touch nothing but weights.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

LINE: tl.constexpr = tl.constexpr(64)
"""16-bit numbers in the 128 bytes that a prefetch brings."""


@triton.jit
def weight_rows(program, N, BLOCK_N: tl.constexpr, GATED: tl.constexpr):
    """[BLOCK_N] rows of the weight that a program has. GATED: half of them gates, half their ups."""
    local = tl.arange(0, BLOCK_N)
    if GATED:
        HALF: tl.constexpr = BLOCK_N // 2
        return program * HALF + tl.where(local < HALF, local, N // 2 + local - HALF)
    return program * BLOCK_N + local


@triton.jit
def normed(x, scale, gain, dtype: tl.constexpr):
    """x * scale * gain in float32, rounded behind each product."""
    return ((x * scale).to(dtype).to(tl.float32) * gain).to(dtype).to(tl.float32)


@triton.jit
def finish(
    sums, program, of_weight, bias, residual, out, rows, N, residual_stride, out_stride,
    BLOCK_N: tl.constexpr, ROWS: tl.constexpr, BIAS: tl.constexpr, ADD: tl.constexpr,
    GATED: tl.constexpr,
):  # fmt: skip
    """Store sums [BLOCK_N, ROWS] float32, after bias, gate and residual."""
    dtype: tl.constexpr = out.dtype.element_ty
    row = tl.arange(0, ROWS)
    columns = of_weight
    count = N
    if BIAS:
        sums += tl.load(bias + of_weight, mask=of_weight < N, other=0.0).to(tl.float32)[:, None]
    y = sums.to(dtype).to(tl.float32)
    if GATED:
        HALF: tl.constexpr = BLOCK_N // 2
        gate, up = tl.split(tl.permute(tl.reshape(y, [2, HALF, ROWS]), [1, 2, 0]))
        y = (gate / (1.0 + tl.exp(-gate))).to(dtype).to(tl.float32) * up
        columns = program * HALF + tl.arange(0, HALF)
        count = N // 2
    mask = (columns < count)[:, None] & (row < rows)[None, :]
    if ADD:
        at = residual + row[None, :] * residual_stride + columns[:, None]
        y += tl.load(at, mask=mask, other=0.0).to(tl.float32)
    tl.store(out + row[None, :] * out_stride + columns[:, None], y.to(dtype), mask=mask)


@triton.jit(do_not_specialize=["rows"])
def row_kernel(
    x, gain, weight, bias, residual, out, rows, N, eps, x_stride, residual_stride, out_stride,
    K: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_N: tl.constexpr, ROWS: tl.constexpr,
    NORM: tl.constexpr, BIAS: tl.constexpr, ADD: tl.constexpr, GATED: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """Each program norms the whole of x for itself: it is small, and in the cache."""
    program = tl.program_id(0)
    of_weight = weight_rows(program, N, BLOCK_N, GATED)
    ks = tl.arange(0, BLOCK_K)
    inside = (of_weight < N)[:, None]
    at = weight + of_weight[:, None].to(tl.int64) * K + ks[None, :]
    tile = tl.load(at, mask=inside & (ks < K)[None, :], other=0.0)
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()
    dtype: tl.constexpr = x.dtype.element_ty
    row = tl.arange(0, ROWS)
    scales = tl.zeros([ROWS], tl.float32)
    if NORM:
        for m in tl.static_range(ROWS):
            squares = tl.zeros([BLOCK_K], tl.float32)
            for k in tl.static_range(0, K, BLOCK_K):
                mask = (k + ks < K) & (m < rows)
                numbers = tl.load(x + m * x_stride + k + ks, mask=mask, other=0.0).to(tl.float32)
                squares += numbers * numbers
            scales = tl.where(row == m, tl.rsqrt(tl.sum(squares, 0) / K + eps), scales)
    sums = tl.zeros([BLOCK_N, ROWS], tl.float32)
    for k in tl.static_range(0, K, BLOCK_K):
        wide = tile.to(tl.float32)
        if k + BLOCK_K < K:
            tile = tl.load(
                at + k + BLOCK_K, mask=inside & (k + BLOCK_K + ks < K)[None, :], other=0.0
            )
        for m in tl.static_range(ROWS):
            mask = (k + ks < K) & (m < rows)
            numbers = tl.load(x + m * x_stride + k + ks, mask=mask, other=0.0).to(tl.float32)
            if NORM:
                weights = tl.load(gain + k + ks, mask=k + ks < K, other=0.0).to(tl.float32)
                scale = tl.sum(tl.where(row == m, scales, 0.0), 0)
                numbers = normed(numbers, scale, weights, dtype)
            y = tl.sum(wide * numbers[None, :], 1)
            sums = tl.where((row == m)[None, :], sums + y[:, None], sums)
    finish(
        sums, program, of_weight, bias, residual, out, rows, N, residual_stride, out_stride,
        BLOCK_N, ROWS, BIAS, ADD, GATED,
    )  # fmt: skip


@triton.jit(do_not_specialize=["rows"])
def tile_kernel(
    x, weight, bias, residual, out, rows, N, x_stride, residual_stride, out_stride,
    K: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_N: tl.constexpr, ROWS: tl.constexpr,
    BIAS: tl.constexpr, ADD: tl.constexpr, GATED: tl.constexpr, EARLY: tl.constexpr,
    AHEAD: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """The weights are the rows of the product on tensor cores: those of x would leave most of them idle.

    AHEAD: columns of the weights that are sent for into the L2 cache before the wait.
    """
    program = tl.program_id(0)
    of_weight = weight_rows(program, N, BLOCK_N, GATED)
    inside = (of_weight < N)[:, None]
    start = weight + of_weight[:, None].to(tl.int64) * K
    if AHEAD > 0:
        first = tl.arange(0, AHEAD // LINE)[None, :] * LINE
        lines = tl.where(inside & (first < K), (start + first).to(tl.int64), weight.to(tl.int64))
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [lines], dtype=tl.int32,
            is_pure=False, pack=1,
        )  # fmt: skip
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()
    ks = tl.arange(0, BLOCK_K)
    row = tl.arange(0, ROWS)
    sums = tl.zeros([BLOCK_N, ROWS], tl.float32)
    for k in tl.range(0, K, BLOCK_K, num_stages=STAGES):
        mask = (k + ks < K)[:, None] & (row < rows)[None, :]
        numbers = tl.load(x + row[None, :] * x_stride + k + ks[:, None], mask=mask, other=0.0)
        tile = tl.load(start + k + ks[None, :], mask=inside & (k + ks < K)[None, :], other=0.0)
        sums = tl.dot(tile, numbers, sums)
    finish(
        sums, program, of_weight, bias, residual, out, rows, N, residual_stride, out_stride,
        BLOCK_N, ROWS, BIAS, ADD, GATED,
    )  # fmt: skip


@triton.jit
def norm_kernel(
    x, gain, out, eps, x_stride, K: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr
):
    """out [rows, K], contiguous; a row a program."""
    ks = tl.arange(0, BLOCK)
    weights = tl.load(gain + ks, mask=ks < K, other=0.0).to(tl.float32)
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()
    row = tl.program_id(0)
    numbers = tl.load(x + row * x_stride + ks, mask=ks < K, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(numbers * numbers, 0) / K + eps)
    dtype: tl.constexpr = out.dtype.element_ty
    tl.store(out + row * K + ks, normed(numbers, scale, weights, dtype).to(dtype), mask=ks < K)
