"""Other right kernels: no tiles of rows, one flat program for everything that a token or a row needs.

A program walks over every so-manieth row, one at a time, as one tile or, if it is long, as several that
are read twice. A token is one program, with all of its heads in one tile of pairs [heads, half, 2],
which is loaded at once, split, turned, and joined again.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from yaie.core.interpreter import repair

repair()


@triton.jit
def summed(x, residual, at, at_residual, real, ADD: tl.constexpr):
    """The numbers that are normed, float32; with ADD they are written to residual first."""
    value = tl.load(x + at, mask=real, other=0).to(tl.float32)
    if ADD:
        value += tl.load(residual + at_residual, mask=real, other=0).to(tl.float32)
        value = value.to(residual.dtype.element_ty)
        tl.store(residual + at_residual, value, mask=real)
        value = value.to(tl.float32)
    return value


@triton.jit
def weighted(value, root, weight, lane, real, dtype):
    gain = tl.load(weight + lane, mask=real, other=0).to(tl.float32)
    return ((value / root).to(dtype).to(tl.float32) * gain).to(dtype)


@triton.jit
def norm_kernel(
    x, residual, weight, out, rows, heads, token_stride, head_stride, residual_stride, out_stride,
    D, eps, ADD: tl.constexpr, BLOCK: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    for number in range(tl.program_id(0), rows, tl.num_programs(0)):
        row = tl.cast(number, tl.int64)
        start = row // heads * token_stride + row % heads * head_stride
        onto, into = row * residual_stride, row * out_stride
        lane = tl.arange(0, BLOCK)
        real = lane < D
        value = summed(x, residual, start + lane, onto + lane, real, ADD)
        if WHOLE:
            root = tl.sqrt(tl.sum(value * value) / D + eps)
            normed = weighted(value, root, weight, lane, real, x.dtype.element_ty)
            tl.store(out + into + lane, normed, mask=real)
        else:
            squares = value * value
            for first in range(BLOCK, D, BLOCK):
                real = first + lane < D
                value = summed(x, residual, start + first + lane, onto + first + lane, real, ADD)
                squares += value * value
            root = tl.sqrt(tl.sum(squares) / D + eps)
            for first in range(0, D, BLOCK):
                real = first + lane < D
                source = residual + onto if ADD else x + start
                value = tl.load(source + first + lane, mask=real, other=0).to(tl.float32)
                normed = weighted(value, root, weight, first + lane, real, x.dtype.element_ty)
                tl.store(out + into + first + lane, normed, mask=real)


def launch_norm(rows, residual, weight, out, strides, eps, add):
    """rows [tokens, heads, d], residual, out: strides of residual's and of out's rows."""
    d, count = rows.shape[-1], rows.shape[0] * rows.shape[1]
    whole = d <= 8192
    norm_kernel[(triton.cdiv(count, 8),)](
        rows, residual, weight, out, count, rows.shape[1], rows.stride(0), rows.stride(1), *strides,
        d, eps, ADD=add, BLOCK=triton.next_power_of_2(d) if whole else 8192, WHOLE=whole,
    )  # fmt: skip


@triton.jit
def gate_kernel(x, out, stride, D, SIZE, BLOCK: tl.constexpr):
    """Numbers of all rows, numbered through: row and column by division."""
    flat = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = flat < SIZE
    at = x + (flat // D).to(tl.int64) * stride + flat % D
    gate = tl.load(at, mask=real, other=0).to(tl.float32)
    up = tl.load(at + D, mask=real, other=0).to(tl.float32)
    gate = (gate * tl.sigmoid(gate)).to(x.dtype.element_ty).to(tl.float32)
    tl.store(out + flat, (gate * up).to(x.dtype.element_ty), mask=real)


@triton.jit
def turned(x, at, real, c, s):
    """Pairs [heads, HALF, 2] at `at`, turned by [HALF] angles."""
    first, second = tl.split(tl.load(x + at, mask=real, other=0).to(tl.float32))
    return tl.join(first * c - second * s, first * s + second * c).to(x.dtype.element_ty)


@triton.jit
def token_kernel(
    q, k, v, positions, cos, sin, keys, values, slots,
    q_token, q_head, k_token, k_head, v_token, v_head, block_stride, slot_stride, head_stride,
    block_size, heads, kv_heads,
    D: tl.constexpr, D_BLOCK: tl.constexpr, HALF: tl.constexpr, HALF_BLOCK: tl.constexpr,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, STORE: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    angle = tl.arange(0, HALF_BLOCK)
    row = tl.load(positions + token) * HALF + angle
    c = tl.load(cos + row, mask=angle < HALF, other=0)[None, :]
    s = tl.load(sin + row, mask=angle < HALF, other=0)[None, :]
    pair = angle[:, None] + tl.arange(0, 2)[None, :] * HALF
    known = (angle < HALF)[None, :, None]
    head = tl.arange(0, HEADS)[:, None, None]
    at = token * q_token + head * q_head + pair[None, :, :]
    tl.store(q + at, turned(q, at, (head < heads) & known, c, s), mask=(head < heads) & known)
    head = tl.arange(0, KV_HEADS)[:, None, None]
    at = token * k_token + head * k_head + pair[None, :, :]
    new = turned(k, at, (head < kv_heads) & known, c, s)
    if STORE:
        slot = tl.load(slots + token)
        place = slot // block_size * block_stride + slot % block_size * slot_stride
        real = (head < kv_heads) & known & (slot >= 0)
        tl.store(keys + place + head * head_stride + pair[None, :, :], new, mask=real)
        column = tl.arange(0, D_BLOCK)[None, :]
        head = tl.arange(0, KV_HEADS)[:, None]
        real = (head < kv_heads) & (column < D) & (slot >= 0)
        place += head * head_stride + column
        value = tl.load(v + token * v_token + head * v_head + column, mask=real, other=0)
        tl.store(values + place, value, mask=real)
        rest = real & (column >= 2 * HALF)
        key = tl.load(k + token * k_token + head * k_head + column, mask=rest, other=0)
        tl.store(keys + place, key, mask=rest)
    else:
        tl.store(k + at, new, mask=(head < kv_heads) & known)


@triton.jit
def store_kernel(
    k, v, keys, values, slots, k_token, k_head, v_token, v_head,
    block_stride, slot_stride, head_stride, block_size, SIZE, D, BLOCK: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + token)
    lane = tl.arange(0, BLOCK)
    real = (lane < SIZE) & (slot >= 0)
    place = slot // block_size * block_stride + slot % block_size * slot_stride
    place += lane // D * head_stride + lane % D
    key = tl.load(k + token * k_token + lane // D * k_head + lane % D, mask=real, other=0)
    value = tl.load(v + token * v_token + lane // D * v_head + lane % D, mask=real, other=0)
    tl.store(keys + place, key, mask=real)
    tl.store(values + place, value, mask=real)


class LayerKernels:
    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        d = x.shape[-1]
        rows = x if x.dim() == 3 else x.reshape(-1, 1, d)
        launch_norm(rows, rows, weight, out, (0, d), eps, add=False)
        return out

    def fused_add_rms_norm(
        self, x: Tensor, residual: Tensor, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        d = x.shape[-1]
        into, onto = x.view(-1, d), residual.view(-1, d)
        strides = onto.stride(0), into.stride(0)
        launch_norm(into.unsqueeze(1), onto, weight, into, strides, eps, add=True)
        return x, residual

    def silu_mul(self, x: Tensor) -> Tensor:
        d = x.shape[-1] // 2
        out = torch.empty((*x.shape[:-1], d), dtype=x.dtype, device=x.device)
        rows = x.reshape(-1, 2 * d)
        grid = (triton.cdiv(out.numel(), 512),)
        gate_kernel[grid](rows, out, rows.stride(0), d, out.numel(), BLOCK=512)
        return out

    def _turn(self, q, k, v, positions, cos, sin, keys, values, slots, store):
        tokens, heads, d = q.shape
        power = triton.next_power_of_2
        token_kernel[(tokens,)](
            q, k, v, positions, cos, sin, keys, values, slots,
            q.stride(0), q.stride(1), k.stride(0), k.stride(1), v.stride(0), v.stride(1),
            keys.stride(0), keys.stride(1), keys.stride(2), keys.shape[1], heads, k.shape[1],
            D=d, D_BLOCK=power(d), HALF=cos.shape[1], HALF_BLOCK=power(cos.shape[1]),
            HEADS=power(heads), KV_HEADS=power(k.shape[1]), STORE=store,
        )  # fmt: skip

    def rope(
        self, q: Tensor, k: Tensor, positions: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor]:
        nowhere = k[:, None]
        self._turn(q, k, k, positions, cos, sin, nowhere, nowhere, positions, store=False)
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
        store_kernel[(len(k),)](
            k, v, key_blocks, value_blocks, slot_mapping,
            k.stride(0), k.stride(1), v.stride(0), v.stride(1), *key_blocks.stride()[:3],
            key_blocks.shape[1], size, k.shape[2], BLOCK=triton.next_power_of_2(size),
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
        blocks = key_blocks, value_blocks, slot_mapping
        self._turn(q, k, v, positions, cos, sin, *blocks, store=True)
