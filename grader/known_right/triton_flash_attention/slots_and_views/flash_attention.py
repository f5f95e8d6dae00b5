"""Another design: an object without a dictionary, results that lie heads first, delta by PyTorch.

The reference's results lie as q does, and a kernel computes delta.
"""

from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor

from .backward_keys import key_kernel
from .backward_queries import query_kernel
from .forward import forward_kernel
from .launch import BACKWARD_KEYS, BACKWARD_QUERIES, FORWARD, Tiles, padded_head_dim, tiles_for


@dataclass(frozen=True, slots=True)
class Call:
    """What all kernels of one call are told besides tensors and tiles; built by `make_call`.

    block_mask: any tensor where there is none, and mask_block is None then.
    """

    n: int
    tq: int
    tk: int
    heads: int
    kv_heads: int
    dim: int
    scale: float
    causal: bool
    window: int | None
    block_mask: Tensor
    mask_block: int | None

    def arguments(self, tiles: Tiles) -> dict[str, Any]:
        """The arguments that all three attention kernels have in common, by name."""
        return {
            "block_mask": self.block_mask,
            "tq": self.tq,
            "tk": self.tk,
            "window": self.window or 0,
            "mask_columns": self.block_mask.shape[-1] if self.mask_block else 0,
            "scale": self.scale,
            "GROUP": self.heads // self.kv_heads,
            "CAUSAL": self.causal,
            "WINDOW": self.window is not None,
            "MASK_BLOCK": self.mask_block or 0,
            "D": self.dim,
            "BLOCK_D": padded_head_dim(self.dim),
            "BLOCK_M": tiles.queries,
            "BLOCK_N": tiles.keys,
            "num_warps": tiles.num_warps,
            "num_stages": tiles.num_stages,
        }


def make_call(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    causal: bool,
    window: int | None,
    block_mask: Tensor | None,
    mask_block: int,
) -> Call:
    """Check what the contract demands. Raises ValueError that says what is wrong."""
    n, tq, heads, dim = q.shape
    tk, kv_heads = k.shape[1], k.shape[2]
    if k.shape != (n, tk, kv_heads, dim) or v.shape != k.shape or heads % max(kv_heads, 1):
        raise ValueError(f"shapes do not fit: q {[*q.shape]}, k {[*k.shape]}, v {[*v.shape]}")
    if dim > 256:
        raise ValueError(f"a head of {dim} is too large: at most 256")
    if scale <= 0:
        raise ValueError(f"scale must be positive, not {scale}")
    if window is not None and not (causal and window > 0):
        raise ValueError("a window needs causal, and at least 1 key")
    if block_mask is None:
        return Call(n, tq, tk, heads, kv_heads, dim, scale, causal, window, q, None)
    if mask_block < 16 or mask_block & (mask_block - 1):
        raise ValueError(f"mask_block must be a power of two, at least 16, not {mask_block}")
    if block_mask.shape != (triton.cdiv(tq, mask_block), triton.cdiv(tk, mask_block)):
        raise ValueError(f"block_mask {[*block_mask.shape]} does not cover {tq} x {tk}")
    entries = block_mask.to(torch.uint8).contiguous()
    return Call(n, tq, tk, heads, kv_heads, dim, scale, causal, window, entries, mask_block)


class FlashAttention:
    """See `yaie.core.contracts.kernels.FlashAttention`."""

    __slots__ = ()

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
        """(out [n, tq, heads, d], lse [n, heads, tq] float32) for q [n, tq, heads, d]."""
        call = make_call(q, k, v, scale, causal, window, block_mask, mask_block)
        out = heads_first(q)
        lse = torch.empty((call.n, call.heads, call.tq), dtype=torch.float32, device=q.device)
        if out.numel() == 0:
            return out, lse
        tiles = tiles_for(FORWARD, call.dim, q.dtype).within(call.tq, call.tk, call.mask_block)
        grid = (triton.cdiv(call.tq, tiles.queries), call.heads, call.n)
        forward_kernel[grid](
            q, k, v, out, lse,
            q_strides=q.stride()[:3], k_strides=k.stride()[:3], v_strides=v.stride()[:3],
            out_strides=out.stride()[:3], **call.arguments(tiles),
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
        """Gradients (dq, dk, dv) in the shapes and dtypes of q, k, v."""
        call = make_call(q, k, v, scale, causal, window, block_mask, mask_block)
        if grad_out.stride(-1) != 1:  # autograd may hand over an expanded tensor
            grad_out = grad_out.contiguous()
        delta = self.delta(grad_out, out)
        inputs = (grad_out, q, k, v, lse.contiguous(), delta)
        dk, dv = self.backward_keys(call, *inputs)
        return self.backward_queries(call, *inputs), dk, dv

    def delta(self, grad_out: Tensor, out: Tensor) -> Tensor:
        """rowsum(grad_out * out) [n, heads, tq] float32."""
        products = torch.einsum("nthd,nthd->nht", grad_out.float(), out.float())
        return products.contiguous()

    def backward_keys(
        self,
        call: Call,
        grad_out: Tensor,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        lse: Tensor,
        delta: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """(dk, dv) [n, tk, kv_heads, d]."""
        dk, dv = heads_first(k).zero_(), heads_first(v).zero_()
        if dk.numel() == 0:
            return dk, dv
        tiles = tiles_for(BACKWARD_KEYS, call.dim, q.dtype)
        tiles = tiles.within(call.tq, call.tk, call.mask_block)
        grid = (triton.cdiv(call.tk, tiles.keys), call.kv_heads, call.n)
        key_kernel[grid](
            q, k, v, grad_out, lse, delta, dk, dv,
            q_strides=q.stride()[:3], k_strides=k.stride()[:3], v_strides=v.stride()[:3],
            grad_strides=grad_out.stride()[:3], dk_strides=dk.stride()[:3], **call.arguments(tiles),
        )  # fmt: skip
        return dk, dv

    def backward_queries(
        self,
        call: Call,
        grad_out: Tensor,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        lse: Tensor,
        delta: Tensor,
    ) -> Tensor:
        """dq [n, tq, heads, d]."""
        dq = heads_first(q).zero_()
        if dq.numel() == 0:
            return dq
        tiles = tiles_for(BACKWARD_QUERIES, call.dim, q.dtype)
        tiles = tiles.within(call.tq, call.tk, call.mask_block)
        grid = (triton.cdiv(call.tq, tiles.queries), call.heads, call.n)
        query_kernel[grid](
            q, k, v, grad_out, lse, delta, dq,
            q_strides=q.stride()[:3], k_strides=k.stride()[:3], v_strides=v.stride()[:3],
            grad_strides=grad_out.stride()[:3], dq_strides=dq.stride()[:3], **call.arguments(tiles),
        )  # fmt: skip
        return dq


def heads_first(like: Tensor) -> Tensor:
    """Memory for a tensor of this shape [n, t, heads, d], in which a head's tokens are neighbours."""
    n, tokens, heads, dim = like.shape
    return like.new_empty(n, heads, tokens, dim).transpose(1, 2)
