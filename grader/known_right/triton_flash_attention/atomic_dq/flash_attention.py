"""The reference's forward pass, and a backward pass of one kernel, as FlashAttention-2 has it: what a
key tile computes is used for dq too, which many programs add to with atomics."""

import torch
import triton
from torch import Tensor

from .backward_keys import all_kernel
from .forward import forward_kernel
from .launch import FORWARD, Tiles, padded_head_dim, tiles_for


class FlashAttention:
    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        scale: float,
        causal: bool = True,
        window: int | None = None,
        block_mask: Tensor | None = None,
        mask_block: int = 128,
    ) -> tuple[Tensor, Tensor]:
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        lse = q.new_empty((q.shape[0], q.shape[2], q.shape[1]), dtype=torch.float32)
        if out.numel():
            tiles = tiles_for(FORWARD, q.shape[3], q.dtype)
            tiles = tiles.within(
                q.shape[1], k.shape[1], mask_block if block_mask is not None else None
            )
            grid = (triton.cdiv(q.shape[1], tiles.queries), q.shape[2], q.shape[0])
            mask = q if block_mask is None else block_mask.int().contiguous()
            forward_kernel[grid](
                q, k, v, out, lse, mask, q.stride()[:3], k.stride()[:3], v.stride()[:3],
                out.stride()[:3], q.shape[1], k.shape[1], window or 0, mask.shape[1], scale,
                GROUP=q.shape[2] // k.shape[2], CAUSAL=causal, WINDOW=window is not None,
                MASK_BLOCK=0 if block_mask is None else mask_block, D=q.shape[3],
                BLOCK_D=padded_head_dim(q.shape[3]), BLOCK_M=tiles.queries, BLOCK_N=tiles.keys,
            )  # fmt: skip
        return out, lse

    def backward(
        self,
        grad_out: Tensor,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        out: Tensor,
        lse: Tensor,
        *,
        scale: float,
        causal: bool = True,
        window: int | None = None,
        block_mask: Tensor | None = None,
        mask_block: int = 128,
    ) -> tuple[Tensor, Tensor, Tensor]:
        dq = torch.zeros(q.shape, dtype=torch.float32, device=q.device)
        dk = torch.zeros(k.shape, dtype=torch.float32, device=q.device)
        dv = torch.zeros_like(dk)
        delta = (grad_out.float() * out.float()).sum(-1).transpose(1, 2).contiguous()
        n, tq, heads, dim = q.shape
        tk = k.shape[1]
        tiles = Tiles(64, 64, 4, 1).within(tq, tk, mask_block if block_mask is not None else None)
        mask = q if block_mask is None else block_mask.int().contiguous()
        if q.numel() and k.numel():
            all_kernel[triton.cdiv(tk, tiles.keys), heads, n](
                q, k, v, grad_out.contiguous(), lse, delta, dq, dk, dv, mask, q.stride()[:3],
                k.stride()[:3], v.stride()[:3], tq, tk, window or 2**30, mask.shape[1], scale,
                GROUP=heads // k.shape[2], CAUSAL=causal,
                MASK_BLOCK=0 if block_mask is None else mask_block, D=dim,
                BLOCK_D=padded_head_dim(dim), BLOCK_M=tiles.queries, BLOCK_N=tiles.keys,
            )  # fmt: skip
        return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype)
