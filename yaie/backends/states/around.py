"""What stands around the rules in a layer, in PyTorch: a dozen operations on each token's numbers."""

import torch
import torch.nn.functional as F
from torch import Tensor


class PlainAround:
    """That part of `StateOps`. Rounds where transformers' models do."""

    def delta_inputs(
        self,
        q: Tensor,
        k: Tensor,
        a: Tensor,
        b: Tensor,
        log_a: Tensor,
        dt_bias: Tensor,
        eps: float = 1e-6,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        wide = torch.promote_types(torch.float32, a.dtype)
        log_decay = -log_a.exp() * F.softplus(a.to(wide) + dt_bias)
        q, k = _unit(q, q.shape[-1] ** -0.5, eps), _unit(k, 1.0, eps)
        return q, k, log_decay, b.sigmoid().to(wide)

    def gated_norm(
        self, x: Tensor, gate: Tensor, weight: Tensor, eps: float, gate_first: bool = False
    ) -> Tensor:
        dtype = x.dtype
        x = x.to(torch.promote_types(torch.float32, dtype))
        factor = F.silu(gate.to(x.dtype)).view(x.shape)
        if gate_first:
            x = x * factor
        x = x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + eps)
        normed = x.to(dtype) * weight
        return (normed if gate_first else (normed * factor).to(dtype)).flatten(1)

    def sigmoid_gate(self, x: Tensor, gate: Tensor) -> Tensor:
        return (x * gate.sigmoid()).flatten(1)


def _unit(x: Tensor, length: float, eps: float) -> Tensor:
    wide = x.to(torch.promote_types(torch.float32, x.dtype))
    factor = torch.rsqrt(wide.square().sum(dim=-1, keepdim=True) + eps) * length
    return (wide * factor).to(x.dtype)
