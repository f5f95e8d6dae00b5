"""Another design: one launch over the numbers of all tokens for `store_kv`; see `store.py`."""

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
from .store import store_all_kernel


class LayerKernels:
    """See `yaie.core.contracts.kernels`. There is nothing to launch for an empty batch.

    Every tensor may have gaps, each its own: rows, heads, blocks and slots are as far apart as that
    tensor's strides say. Only the last dimension is always packed, and for `store_kv` a slot's heads.
    """

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """x [..., d], normed. Any leading dimensions; [T, heads, d] may be a view with gaps."""
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        if not x.numel():
            return out
        view, tokens, heads = as_token_heads(x)
        d, rows = x.shape[-1], tokens * heads
        strides = view.stride(0), view.stride(1)
        if d > LONGEST_ROW:
            long_rms_norm_kernel[(rows,)](
                view, view, weight, out, *strides, 0, d, heads, eps, d, ADD=False, BLOCK=4096,
                num_warps=8,
            )  # fmt: skip
            return out
        tile = norm_tile(rows, d, num_multiprocessors(x.device))
        rms_norm_kernel[(tile.programs,)](
            view, weight, out, *strides, rows, heads, eps,
            D=d, BLOCK=tile.block, ROWS=tile.rows, STAGES=tile.stages, num_warps=tile.warps,
        )  # fmt: skip
        return out

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
        if d > LONGEST_ROW:
            long_rms_norm_kernel[(len(into),)](
                into, onto, weight, into, into.stride(0), 0, onto.stride(0), into.stride(0), 1, eps, d,
                ADD=True, BLOCK=4096, num_warps=8,
            )  # fmt: skip
            return x, residual
        # Half as many a thread as above: two rows are in registers.
        tile = norm_tile(len(into), d, num_multiprocessors(x.device), numbers=16)
        add_rms_norm_kernel[(tile.programs,)](
            into, onto, weight, into.stride(0), onto.stride(0), len(into), eps,
            D=d, BLOCK=tile.block, ROWS=tile.rows, STAGES=tile.stages, num_warps=tile.warps,
        )  # fmt: skip
        return x, residual

    def silu_mul(self, x: Tensor) -> Tensor:
        """silu(gate) * up for x [..., 2 * d] = [gate | up]. Returns [..., d], contiguous."""
        d = x.shape[-1] // 2
        out = torch.empty((*x.shape[:-1], d), dtype=x.dtype, device=x.device)
        if not out.numel():
            return out
        flat = x.reshape(-1, 2 * d)
        tile = min(ELEMENTWISE_TILE, triton.next_power_of_2(d))
        silu_mul_kernel[(len(flat) * triton.cdiv(d, tile),)](
            flat, out, flat.stride(0), d, BLOCK=tile, num_warps=4
        )
        return out

    def rope(
        self, q: Tensor, k: Tensor, positions: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Turn q and k in place, in one launch, and return them. cos, sin: contiguous tables."""
        tokens, heads, _ = q.shape
        kv_heads, half = k.shape[1], cos.shape[1]
        if not tokens:
            return q, k
        tile = head_tile(tokens, heads, kv_heads, num_multiprocessors(q.device))
        rope_kernel[(tokens, tile.tiles)](
            q, k, positions, cos, sin, q.stride(0), q.stride(1), k.stride(0), k.stride(1),
            heads, kv_heads, HALF=half, BLOCK_HALF=triton.next_power_of_2(half),
            HEADS=tile.heads, KV_HEADS=tile.kv_heads, num_warps=tile.warps,
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
        """Store k, v [T, kv_heads, d] in their slots; a negative slot stores nothing."""
        if not len(slot_mapping):
            return
        k, v = k.flatten(1), v.flatten(1)
        # A view, or an error: a copy of the pool would be written in vain.
        keys, values = (pool.view(*pool.shape[:2], -1) for pool in (key_blocks, value_blocks))
        count = k.numel()
        store_all_kernel[(triton.cdiv(count, 256),)](
            k, v, keys, values, slot_mapping, k.stride(0), v.stride(0), *keys.stride()[:2],
            *values.stride()[:2], keys.shape[1], count, k.shape[1], BLOCK=256, num_warps=2,
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
        """`rope` of q in place, k turned into its slots, v copied into its slots: one launch."""
        tokens, heads, d = q.shape
        kv_heads, half = k.shape[1], cos.shape[1]
        if not tokens:
            return
        tile = head_tile(tokens, heads, kv_heads, num_multiprocessors(q.device))
        rope_and_store_kernel[(tokens, tile.tiles)](
            q, k, v, positions, cos, sin, key_blocks, value_blocks, slot_mapping,
            q.stride(0), q.stride(1), k.stride(0), k.stride(1), v.stride(0), v.stride(1),
            *key_blocks.stride()[:3], key_blocks.shape[1], heads, kv_heads,
            D=d, BLOCK_D=triton.next_power_of_2(d), REST=triton.next_power_of_2(d - 2 * half),
            HALF=half, BLOCK_HALF=triton.next_power_of_2(half),
            HEADS=tile.heads, KV_HEADS=tile.kv_heads, num_warps=tile.warps,
        )  # fmt: skip
