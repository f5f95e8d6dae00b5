"""Small Triton kernels that are measured, not used: each shows one thing about a GPU."""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def copy_strided(x_ptr, out_ptr, n, STRIDE: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Reads every STRIDE-th number of x, writes them side by side."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    tl.store(out_ptr + i, tl.load(x_ptr + i * STRIDE, mask=mask), mask=mask)


@triton.jit
def copy_resident(x_ptr, out_ptr, tiles, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """A grid that stays: each program takes tile after tile, and has one tile on its way at a time."""
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), num_stages=1):
        i = tile * BLOCK + tl.arange(0, BLOCK)
        tl.store(out_ptr + i, tl.load(x_ptr + i))


@triton.jit
def fma_chain(x_ptr, out_ptr, n, STEPS: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """STEPS multiplications and additions for each number that is read and written."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    y = x
    for _ in tl.static_range(STEPS):
        y = y * 0.999 + x
    tl.store(out_ptr + i, y, mask=i < n)


@triton.jit
def chase(next_ptr, out_ptr, steps):  # type: ignore[no-untyped-def]
    """One load after another, each at the address that the one before has brought."""
    at = tl.load(next_ptr)
    for _ in range(steps):
        at = tl.load(next_ptr + at)
    tl.store(out_ptr, at)


@triton.jit
def rms_norm_rows(  # type: ignore[no-untyped-def]
    x_ptr, w_ptr, out_ptr, along_row, along_column, d, eps, BLOCK: tl.constexpr
):
    """One program a row. along_row, along_column: elements from one row, one column, to the next."""
    columns = tl.arange(0, BLOCK)
    mask = columns < d
    place = tl.program_id(0).to(tl.int64) * along_row + columns.to(tl.int64) * along_column
    x = tl.load(x_ptr + place, mask=mask, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x) / d + eps)
    w = tl.load(w_ptr + columns, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + place, (x * scale * w).to(out_ptr.dtype.element_ty), mask=mask)


def run_copy_strided(x: Tensor, out: Tensor, stride: int) -> None:
    n = out.numel()
    copy_strided[(triton.cdiv(n, 1024),)](x, out, n, STRIDE=stride, BLOCK=1024)


def run_fma_chain(x: Tensor, out: Tensor, steps: int) -> None:
    n = out.numel()
    fma_chain[(triton.cdiv(n, 1024),)](x, out, n, STEPS=steps, BLOCK=1024)


def norm(x: Tensor, w: Tensor, out: Tensor) -> None:
    """RMSNorm of the rows of x, whichever of its two dimensions is contiguous."""
    d = x.shape[1]
    rms_norm_rows[(x.shape[0],)](
        x, w, out, x.stride(0), x.stride(1), d, 1e-5, BLOCK=triton.next_power_of_2(d), num_warps=8
    )


def eager_norm(x: Tensor, w: Tensor) -> Tensor:
    """The same in six operations of PyTorch."""
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * w


def norm_inputs(rows: int = 8192, d: int = 4096) -> tuple[Tensor, Tensor, Tensor]:
    """x with contiguous rows, x with contiguous columns, and a weight; bfloat16, on the GPU."""
    bf16 = {"dtype": torch.bfloat16, "device": "cuda"}
    x = torch.randn(rows, d, **bf16)  # type: ignore[call-overload]
    columns = torch.randn(d, rows, **bf16).t()  # type: ignore[call-overload]
    return x, columns, torch.ones(d, **bf16)  # type: ignore[call-overload]
