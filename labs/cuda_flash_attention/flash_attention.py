"""FlashAttention on the kernels of this folder; see `yaie.core.contracts.kernels` for the contract.

The tiles of scores stay in a thread block (Dao et al. 2022, 2023). Arithmetic is float32 on CUDA cores.
"""

from pathlib import Path

import torch
from torch import Tensor

from yaie.cuda.library import Argument, CudaLibrary

LIBRARY = CudaLibrary(Path(__file__).parent)
MAX_DIM = 256
ALIGNMENT = 8  # elements: what 16 bytes of a half type hold


class FlashAttention:
    """See `yaie.core.contracts.kernels.FlashAttention`."""

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
        """(out [n, tq, heads, d], lse [n, heads, tq] float32)."""
        return _run_forward("forward", q, k, v, scale, causal, window, block_mask, mask_block)

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
        """Gradients (dq, dk, dv), each in the shape and the dtype of what it belongs to."""
        q, k, v = (_aligned(tensor) for tensor in (q, k, v))
        grad_out, out, lse = _aligned(grad_out.contiguous()), out.contiguous(), lse.contiguous()
        n, tq, heads, dim = q.shape
        delta = torch.empty_like(lse)
        LIBRARY.call("output_times_gradient", out, grad_out, delta, q.dtype, n, tq, heads, dim)
        rules = rules_of(q, k, v, scale, causal, window, block_mask, mask_block)
        dk, dv = self.backward_kv(grad_out, q, k, v, lse, delta, rules)
        return self.backward_q(grad_out, q, k, v, lse, delta, rules), dk, dv

    def backward_kv(
        self,
        grad_out: Tensor,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        lse: Tensor,
        delta: Tensor,
        rules: list[Argument],
    ) -> tuple[Tensor, Tensor]:
        """(dk, dv). delta: [n, heads, tq], the product of each output row with its gradient."""
        dk, dv = (torch.empty(t.shape, dtype=t.dtype, device=t.device) for t in (k, v))
        LIBRARY.call("backward_kv", grad_out, q, k, v, lse, delta, dk, dv, *rules)
        return dk, dv

    def backward_q(
        self,
        grad_out: Tensor,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        lse: Tensor,
        delta: Tensor,
        rules: list[Argument],
    ) -> Tensor:
        """dq, from what `backward_kv` gets too."""
        dq = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        LIBRARY.call("backward_q", grad_out, q, k, v, lse, delta, dq, *rules)
        return dq


def naive_forward(
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
    """`FlashAttention.forward` by the kernel that is written first; see `naive.cu`."""
    return _run_forward("naive_forward", q, k, v, scale, causal, window, block_mask, mask_block)


def _run_forward(
    name: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    causal: bool,
    window: int | None,
    block_mask: Tensor | None,
    mask_block: int,
) -> tuple[Tensor, Tensor]:
    q, k, v = (_aligned(tensor) for tensor in (q, k, v))
    n, tq, heads, _ = q.shape
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(n, heads, tq, dtype=torch.float32, device=q.device)
    rules = rules_of(q, k, v, scale, causal, window, block_mask, mask_block)
    LIBRARY.call(name, q, k, v, out, lse, *rules)
    return out, lse


def rules_of(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    causal: bool,
    window: int | None,
    block_mask: Tensor | None,
    mask_block: int,
) -> list[Argument]:
    """The arguments that all kernels share: mask, dtype, sizes, strides, rules and scale."""
    n, tq, heads, dim = q.shape
    tk, kv_heads = k.shape[1:3]
    if dim % ALIGNMENT or dim > MAX_DIM:
        raise ValueError(
            f"head size {dim}: this kernel takes multiples of {ALIGNMENT} to {MAX_DIM}"
        )
    if heads % kv_heads:
        raise ValueError(f"{heads} query heads do not share {kv_heads} key heads evenly")
    if window is not None and not causal:
        raise ValueError("a window needs causal=True")
    columns = -(-tk // mask_block)
    if block_mask is not None:
        block_mask = _checked_mask(block_mask, [-(-tq // mask_block), columns], mask_block)
    strides = [tensor.stride(i) for tensor in (q, k, v) for i in (0, 1)]
    sizes = [n, tq, tk, heads, kv_heads, dim]
    rules = [int(causal), window or 0, mask_block.bit_length() - 1, columns]
    return [block_mask, q.dtype, *sizes, *strides, *rules, float(scale)]


def _checked_mask(block_mask: Tensor, shape: list[int], mask_block: int) -> Tensor:
    if mask_block < 16 or mask_block & (mask_block - 1):
        raise ValueError(f"mask_block {mask_block} is not a power of two from 16 on")
    if block_mask.dtype != torch.bool or list(block_mask.shape) != shape:
        raise ValueError(
            f"block_mask: {shape} bool expected, got {list(block_mask.shape)} {block_mask.dtype}"
        )
    return block_mask.contiguous()


def _aligned(tensor: Tensor) -> Tensor:
    """Itself if its rows can be read 16 bytes at a time with its heads side by side, else a copy."""
    heads, dim = tensor.shape[2:]
    regular = tensor.stride(3) == 1 and (tensor.stride(2) == dim or heads == 1)
    steps = all(tensor.stride(i) % ALIGNMENT == 0 for i in (0, 1))
    if regular and steps and tensor.data_ptr() % 16 == 0:
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)
