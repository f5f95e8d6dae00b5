"""The kernels behind `loss.backward()`: a torch.autograd.Function around any FlashAttention."""

from typing import Any

import torch
from torch import Tensor

from yaie.core.contracts.kernels import FlashAttention


# ANCHOR: autograd
class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, kernels: FlashAttention, options: dict[str, Any]
    ) -> Tensor:
        out, lse = kernels.forward(q, k, v, **options)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.kernels, ctx.options = kernels, options
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        dq, dk, dv = ctx.kernels.backward(*grads, *ctx.saved_tensors, **ctx.options)
        return dq, dk, dv, None, None


def attend(kernels: FlashAttention, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    """kernels.forward(q, k, v, **options)[0], through which gradients flow to q, k and v."""
    out: Tensor = _Attend.apply(q, k, v, kernels, options)
    return out


# ANCHOR_END: autograd
