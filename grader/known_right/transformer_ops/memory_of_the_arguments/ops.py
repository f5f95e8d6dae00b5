"""Other right operations: the fused norm leaves both its results in the memory of its arguments.

The sum goes into x, the normalised sum into what was the residual, the other way round than in the
reference. Elsewhere results are views: of a wider buffer, or with their dimensions in another order.
"""

import torch
from torch import Tensor

from yaie.core.batch import AttentionSpec

from . import attention as functions


class TransformerOps:
    """See `yaie.core.contracts.TransformerOps`."""

    @staticmethod
    def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """By the length of each vector: mean(x**2) is its square over d."""
        wide = x.to(torch.float64)
        length = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
        normed = wide / torch.sqrt(length.square() / x.shape[-1] + eps)
        return normed.to(x.dtype).mul(weight)

    def fused_add_rms_norm(
        self, x: Tensor, residual: Tensor, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        """Both results reuse the arguments' memory."""
        x += residual
        residual.copy_(self.rms_norm(x, weight, eps))
        return residual, x

    def rope(
        self, q: Tensor, k: Tensor, positions: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Queries and keys are turned together, as heads of one tensor, and come back as its views."""
        both = torch.cat((q, k), dim=1)
        c, s = cos[positions].unsqueeze(1), sin[positions].unsqueeze(1)
        half = cos.size(1)
        pair = both[..., : 2 * half].to(torch.float32, copy=True).unflatten(-1, (2, half))
        first, second = pair.unbind(-2)
        both[..., :half] = torch.addcmul(first * c, second, s, value=-1).to(both.dtype)
        both[..., half : 2 * half] = torch.addcmul(first * s, second, c).to(both.dtype)
        return both[:, : q.shape[1]], both[:, q.shape[1] :]

    @staticmethod
    def silu_mul(x: Tensor) -> Tensor:
        """up * gate / (1 + exp(-gate)), as a view of the lower half of a tensor as wide as x."""
        out = torch.empty_like(x)
        gate, up = x.unflatten(-1, (2, -1)).unbind(-2)
        result = out[..., : gate.shape[-1]]
        result.copy_(up.double() * gate.double() / (1 + (-gate.double()).exp()))
        return result

    @staticmethod
    def causal_mask(
        kv_lens: Tensor, tq: int, tk: int, window: int | None, dtype: torch.dtype
    ) -> Tensor:
        """Which keys each query sees; see `attention.causal_mask`."""
        return functions.causal_mask(kv_lens, tq, tk, window, dtype)

    @staticmethod
    def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, spec: AttentionSpec) -> Tensor:
        """Grouped-query attention; see `attention.attention`."""
        return functions.attention(q, k, v, mask, spec)
