# ORACLE
"""The same operations as one writes them first: right, short, and slow for reasons the chapter names.

One row, or one head, is one program; a row is read as often as it is used; what another kernel could go
on with goes through memory. The oracle of the tests, and what the tuned kernels are measured against.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor


# ANCHOR: add
@triton.jit
def add_kernel(x, y, out, size, BLOCK: tl.constexpr):
    """out = x + y for vectors of `size` numbers. Program p has numbers p * BLOCK to (p + 1) * BLOCK."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < size
    total = tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask)
    tl.store(out + offsets, total, mask=mask)


def add(x: Tensor, y: Tensor) -> Tensor:
    """x + y, for contiguous vectors of one size."""
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), BLOCK=256)
    return out


# ANCHOR_END: add


# ANCHOR: rms_norm
@triton.jit
def rms_norm_kernel(x, weight, out, eps, D, BLOCK: tl.constexpr):
    """Program p has row p, BLOCK numbers at a time: once for the squares, once more for the result."""
    row = tl.program_id(0).to(tl.int64) * D
    columns = tl.arange(0, BLOCK)
    squares = tl.zeros([BLOCK], tl.float32)
    for start in range(0, D, BLOCK):
        mask = start + columns < D
        values = tl.load(x + row + start + columns, mask=mask, other=0.0).to(tl.float32)
        squares += values * values
    scale = tl.rsqrt(tl.sum(squares) / D + eps)
    for start in range(0, D, BLOCK):
        mask = start + columns < D
        values = tl.load(x + row + start + columns, mask=mask, other=0.0).to(tl.float32)
        gain = tl.load(weight + start + columns, mask=mask, other=0.0).to(tl.float32)
        normed = (values * scale).to(out.dtype.element_ty).to(tl.float32) * gain
        tl.store(out + row + start + columns, normed.to(out.dtype.element_ty), mask=mask)


# ANCHOR_END: rms_norm


# ANCHOR: silu_mul
@triton.jit
def silu_kernel(x, out, D, BLOCK: tl.constexpr):
    """out[row] = silu(x[row, :D]), for x [rows, 2 * D]. Program (row, tile)."""
    row, columns = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(x + row * 2 * D + columns, mask=columns < D, other=0.0).to(tl.float32)
    opened = (gate / (1.0 + tl.exp(-gate))).to(x.dtype.element_ty)
    tl.store(out + row * D + columns, opened, mask=columns < D)


@triton.jit
def mul_kernel(x, out, D, BLOCK: tl.constexpr):
    """out[row] *= x[row, D:]. Reads again what silu_kernel has just written."""
    row, columns = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    up = tl.load(x + row * 2 * D + D + columns, mask=columns < D, other=0.0).to(tl.float32)
    opened = tl.load(out + row * D + columns, mask=columns < D, other=0.0).to(tl.float32)
    tl.store(out + row * D + columns, (opened * up).to(x.dtype.element_ty), mask=columns < D)


# ANCHOR_END: silu_mul


# ANCHOR: rope
@triton.jit
def rope_kernel(
    x, positions, cos, sin, token_stride, head_stride, HALF: tl.constexpr, BLOCK: tl.constexpr
):
    """Turn x [T, heads, d] in place. Program (token, head): every one reads its token's angles anew."""
    token, pairs = tl.program_id(0), tl.arange(0, BLOCK)
    mask = pairs < HALF
    angles = tl.load(positions + token) * HALF + pairs
    c = tl.load(cos + angles, mask=mask, other=0.0)
    s = tl.load(sin + angles, mask=mask, other=0.0)
    at = x + token.to(tl.int64) * token_stride + tl.program_id(1) * head_stride + pairs
    first = tl.load(at, mask=mask, other=0.0).to(tl.float32)
    second = tl.load(at + HALF, mask=mask, other=0.0).to(tl.float32)
    tl.store(at, (first * c - second * s).to(x.dtype.element_ty), mask=mask)
    tl.store(at + HALF, (second * c + first * s).to(x.dtype.element_ty), mask=mask)


# ANCHOR_END: rope


# ANCHOR: store
@triton.jit
def store_kernel(
    x, pool, slots, token_stride, block_stride, slot_stride, block_size, SIZE, BLOCK: tl.constexpr
):
    """Copy row t of x to slot slots[t] of the pool. Program t, all SIZE numbers of it."""
    token, columns = tl.program_id(0), tl.arange(0, BLOCK)
    slot = tl.load(slots + token)
    place = slot // block_size * block_stride + slot % block_size * slot_stride
    row = tl.load(x + token.to(tl.int64) * token_stride + columns, mask=columns < SIZE)
    tl.store(pool + place + columns, row, mask=(columns < SIZE) & (slot >= 0))


# ANCHOR_END: store


class NaiveLayerKernels:
    """`LayerKernels` and `StoreKernel` of `yaie.core.contracts.kernels`, from the kernels above."""

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        x = x.contiguous()
        out, d = torch.empty_like(x), x.shape[-1]
        if x.numel():
            rms_norm_kernel[(x.numel() // d,)](x, weight, out, eps, d, BLOCK=256)
        return out

    def fused_add_rms_norm(
        self, x: Tensor, residual: Tensor, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        """Nothing is fused: an addition, a copy of its result, a norm, and a copy of that."""
        if x.numel():
            residual.copy_(add(x.flatten(), residual.flatten()).view_as(residual))
            x.copy_(self.rms_norm(residual, weight, eps))
        return x, residual

    def silu_mul(self, x: Tensor) -> Tensor:
        x, d = x.contiguous(), x.shape[-1] // 2
        out = x.new_empty((*x.shape[:-1], d))
        grid = (x.numel() // max(1, 2 * d), triton.cdiv(d, 256))
        if out.numel():
            silu_kernel[grid](x, out, d, BLOCK=256)
            mul_kernel[grid](x, out, d, BLOCK=256)
        return out

    def rope(
        self, q: Tensor, k: Tensor, positions: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor]:
        half = cos.shape[1]
        for x in (q, k):
            if x.numel():
                rope_kernel[x.shape[:2]](
                    x, positions, cos, sin, x.stride(0), x.stride(1),
                    HALF=half, BLOCK=triton.next_power_of_2(half),
                )  # fmt: skip
        return q, k

    def store_kv(
        self,
        k: Tensor,
        v: Tensor,
        key_blocks: Tensor,
        value_blocks: Tensor,
        slot_mapping: Tensor,
    ) -> None:
        size = k.shape[1] * k.shape[2]
        for x, pool in ((k.flatten(1), key_blocks), (v.flatten(1), value_blocks)):
            if len(x):
                store_kernel[(len(x),)](
                    x, pool, slot_mapping, x.stride(0), pool.stride(0), pool.stride(1),
                    pool.shape[1], size, BLOCK=triton.next_power_of_2(size),
                )  # fmt: skip

    def rope_and_store(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        positions: Tensor,
        cos: Tensor,
        sin: Tensor,
        key_blocks: Tensor,
        value_blocks: Tensor,
        slot_mapping: Tensor,
    ) -> None:
        """Four launches, and k goes through memory twice more."""
        turned = k.clone()
        self.rope(q, turned, positions, cos, sin)
        self.store_kv(turned, v, key_blocks, value_blocks, slot_mapping)
