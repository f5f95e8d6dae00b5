"""Other right operations: other formulas, fresh memory, one rounding at the very end.

The norm is PyTorch's own, the rotation a product of complex numbers, SiLU a product with a sigmoid, and
the fused norm is taken of the sum before that is rounded.
"""

import torch
from torch import Tensor

from yaie.core.batch import AttentionSpec

from .attention import attention, causal_mask


class TransformerOps:
    """See `yaie.core.contracts.TransformerOps`."""

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """x / sqrt(mean(x**2) + eps) * weight, rounded once."""
        normed = torch.nn.functional.rms_norm(x.float(), weight.shape, weight.float(), eps)
        return normed.to(x.dtype)

    def fused_add_rms_norm(
        self, x: Tensor, residual: Tensor, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        """Norm and sum, both of a sum in float32."""
        total = x.float() + residual.float()
        root = (total.pow(2).sum(dim=-1, keepdim=True) / total.shape[-1] + eps).sqrt()
        return (total / root * weight.float()).to(x.dtype), total.to(x.dtype)

    def rope(
        self, q: Tensor, k: Tensor, positions: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor]:
        """A pair is a complex number, and a rotation a product with one of length 1."""
        turn = torch.complex(cos, sin).index_select(0, positions).unsqueeze(1)
        return _turned(q, turn), _turned(k, turn)

    def silu_mul(self, x: Tensor) -> Tensor:
        """gate * sigmoid(gate) * up, in float32."""
        d = x.shape[-1] // 2
        gate, up = x[..., :d].float(), x[..., d:].float()
        return (gate * gate.sigmoid() * up).to(x.dtype)

    def causal_mask(
        self, kv_lens: Tensor, tq: int, tk: int, window: int | None, dtype: torch.dtype
    ) -> Tensor:
        """Which keys each query sees; see `attention.causal_mask`."""
        return causal_mask(kv_lens, tq, tk, window, dtype)

    def attention(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, spec: AttentionSpec
    ) -> Tensor:
        """Grouped-query attention; see `attention.attention`."""
        return attention(q, k, v, mask, spec)


def _turned(x: Tensor, turn: Tensor) -> Tensor:
    """x [T, heads, d] times turn [T, 1, rotary_dim / 2]; what is beyond rotary_dim is copied."""
    half = turn.shape[-1]
    out = x.clone()
    product = torch.complex(x[..., :half].float(), x[..., half : 2 * half].float()) * turn
    out[..., :half], out[..., half : 2 * half] = product.real.to(x.dtype), product.imag.to(x.dtype)
    return out
