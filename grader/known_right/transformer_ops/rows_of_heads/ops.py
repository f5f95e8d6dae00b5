"""Other right operations: subclassed from parts, with keyword names of the contract and tables joined.

cos and sin are doubled to the whole rotated width and x is multiplied with them twice, once with its
halves exchanged, as transformers does it. SiLU is computed in float64.
"""

from functools import cached_property

import torch
from torch import Tensor

from yaie.core.batch import AttentionSpec

from .attention import attention, causal_mask


class _Norms:
    @cached_property
    def _wide(self) -> torch.dtype:
        return torch.float64

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Root and division, in float64 until the weight."""
        wide = x.to(self._wide)
        root = wide.pow(2).mean(-1, keepdim=True).add(eps).sqrt()
        return wide.div(root).to(x.dtype) * weight

    def fused_add_rms_norm(
        self, x: Tensor, residual: Tensor, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        """The sum as it is rounded, and its norm in memory of its own."""
        total = torch.add(x, residual)
        return self.rms_norm(x=total, weight=weight, eps=eps), total


class _Rotations:
    def rope(
        self, q: Tensor, k: Tensor, positions: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor]:
        """x * cos + half_exchanged(x) * sin, both tables twice as wide."""
        width = 2 * cos.shape[1]
        c, s = (
            torch.cat((table, table), dim=1).index_select(0, positions)[:, None]
            for table in (cos, sin)
        )

        def turned(x: Tensor) -> Tensor:
            part = x[..., :width].float()
            low, high = part.chunk(2, dim=-1)
            part = part * c + torch.cat((-high, low), dim=-1) * s
            return torch.cat((part.to(x.dtype), x[..., width:]), dim=-1)

        return turned(q), turned(k)


class TransformerOps(_Norms, _Rotations):
    """See `yaie.core.contracts.TransformerOps`."""

    def silu_mul(self, x: Tensor) -> Tensor:
        """A gated product in float64."""
        gate, up = x.double().split(x.shape[-1] // 2, dim=-1)
        return torch.nn.functional.silu(gate).mul(up).to(x.dtype)

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
