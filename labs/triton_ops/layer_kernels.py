# Lab 9, your part: tasks 9.1, 9.2, 9.3, 9.4, 9.5, 9.6. The rest is given.
"""The part: shapes and strides in, one launch out. See `yaie.core.contracts.kernels.LayerKernels`."""

import torch
import triton
from torch import Tensor

from .activation import silu_mul_kernel
from .launch import (
    ELEMENTWISE_TILE,
    LONGEST_ROW,
    as_token_heads,
    head_tile,
    norm_tile,
    num_multiprocessors,
)
from .norms import add_rms_norm_kernel, long_rms_norm_kernel, rms_norm_kernel
from .rope import rope_and_store_kernel, rope_kernel
from .store import store_kv_kernel


class LayerKernels:
    """See `yaie.core.contracts.kernels`. There is nothing to launch for an empty batch.

    Every tensor may have gaps, each its own: rows, heads, blocks and slots are as far apart as that
    tensor's strides say. Only the last dimension is always packed, and for `store_kv` a slot's heads.
    """

    # ANCHOR: rms_norm
    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """x [..., d], normed. Any leading dimensions; [T, heads, d] may be a view with gaps."""
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        if not x.numel():
            return out
        view, tokens, heads = as_token_heads(x)
        d, rows = x.shape[-1], tokens * heads
        strides = view.stride(0), view.stride(1)
        # TODO 9.1: your code here (the reference: 11 lines).
        raise NotImplementedError(
            "triton_ops task 9.1: not implemented yet; see chapter Kernels in Triton"
        )
        return out

    # ANCHOR_END: rms_norm

    # ANCHOR: fused_add_rms_norm
    def fused_add_rms_norm(
        self, x: Tensor, residual: Tensor, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        """(rms_norm(x + residual), x + residual), in the memory of x and of residual.

        Rows of x and of residual may be differently far apart.
        """
        if not x.numel():
            return x, residual
        d = x.shape[-1]
        into, onto = x.view(-1, d), residual.view(-1, d)
        # TODO 9.2: your code here (the reference: 11 lines).
        raise NotImplementedError(
            "triton_ops task 9.2: not implemented yet; see chapter Kernels in Triton"
        )
        return x, residual

    # ANCHOR_END: fused_add_rms_norm

    # ANCHOR: silu_mul
    def silu_mul(self, x: Tensor) -> Tensor:
        """silu(gate) * up for x [..., 2 * d] = [gate | up]. Returns [..., d], contiguous."""
        d = x.shape[-1] // 2
        out = torch.empty((*x.shape[:-1], d), dtype=x.dtype, device=x.device)
        if not out.numel():
            return out
        flat = x.reshape(-1, 2 * d)
        # TODO 9.3: your code here (the reference: 4 lines).
        raise NotImplementedError(
            "triton_ops task 9.3: not implemented yet; see chapter Kernels in Triton"
        )
        return out

    # ANCHOR_END: silu_mul

    # ANCHOR: rope
    def rope(
        self, q: Tensor, k: Tensor, positions: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Turn q and k in place, in one launch, and return them. cos, sin: contiguous tables."""
        tokens, heads, _ = q.shape
        kv_heads, half = k.shape[1], cos.shape[1]
        if not tokens:
            return q, k
        # TODO 9.4: your code here (the reference: 6 lines).
        raise NotImplementedError(
            "triton_ops task 9.4: not implemented yet; see chapter Kernels in Triton"
        )
        return q, k

    # ANCHOR_END: rope

    # ANCHOR: store_kv
    def store_kv(
        self,
        k: Tensor,
        v: Tensor,
        key_blocks: Tensor,
        value_blocks: Tensor,
        slot_mapping: Tensor,
    ) -> None:
        """Store k, v [T, kv_heads, d] in their slots; a negative slot stores nothing."""
        if not len(slot_mapping):
            return
        k, v = k.flatten(1), v.flatten(1)
        # A view, or an error: a copy of the pool would be written in vain.
        keys, values = (pool.view(*pool.shape[:2], -1) for pool in (key_blocks, value_blocks))
        # TODO 9.5: your code here (the reference: 5 lines).
        raise NotImplementedError(
            "triton_ops task 9.5: not implemented yet; see chapter Kernels in Triton"
        )

    # ANCHOR_END: store_kv

    # ANCHOR: rope_and_store
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
        """`rope` of q in place, k turned into its slots, v copied into its slots: one launch."""
        tokens, heads, d = q.shape
        kv_heads, half = k.shape[1], cos.shape[1]
        if not tokens:
            return
        # TODO 9.6: your code here (the reference: 8 lines).
        raise NotImplementedError(
            "triton_ops task 9.6: not implemented yet; see chapter Kernels in Triton"
        )

    # ANCHOR_END: rope_and_store
