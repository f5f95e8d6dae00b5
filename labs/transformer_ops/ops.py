# Lab 2, your part: tasks 2.1, 2.2, 2.3, 2.4. The rest is given.
"""The operations that a model adapter and radix attention call; see the contract for shapes.

They are the fallback on every device and the definition of right for every faster kernel.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from yaie.core.batch import AttentionSpec

from .attention import attention, causal_mask


class TransformerOps:
    """See `yaie.core.contracts.TransformerOps`."""

    # ANCHOR: rms_norm
    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """x / sqrt(mean(x**2) + eps) * weight (Zhang and Sennrich 2019). x: [..., d], weight: [d].

        The mean is taken in float32; the normalised value is rounded to x's dtype before the weight
        is applied, as in Llama's own code.
        """
        # TODO 2.1: your code here (the reference: 3 lines).
        raise NotImplementedError(
            "transformer_ops task 2.1: not implemented yet; see chapter Inside a transformer layer"
        )

    # ANCHOR_END: rms_norm

    # ANCHOR: fused_add_rms_norm
    def fused_add_rms_norm(
        self, x: Tensor, residual: Tensor, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        """Returns (rms_norm(x + residual), x + residual). All [..., d]; may reuse their memory."""
        # TODO 2.2: your code here (the reference: 2 lines).
        raise NotImplementedError(
            "transformer_ops task 2.2: not implemented yet; see chapter Inside a transformer layer"
        )

    # ANCHOR_END: fused_add_rms_norm

    # ANCHOR: rope
    def rope(
        self, q: Tensor, k: Tensor, positions: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Rotary embedding (Su et al. 2021) of q [T, heads, d] and k [T, kv_heads, d].

        cos, sin: [max_positions, rotary_dim / 2] float32, indexed by `positions` [T]. Dimension i turns
        together with dimension i + rotary_dim / 2; those from rotary_dim on stay as they are.
        """
        # TODO 2.3: your code here (the reference: 2 lines).
        raise NotImplementedError(
            "transformer_ops task 2.3: not implemented yet; see chapter Inside a transformer layer"
        )

    def _rotate(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Turn each pair (first[i], second[i]) of x [T, heads, d]; cos, sin: [T, 1, rotary_dim / 2]."""
        # TODO 2.3: your code here (the reference: 4 lines).
        raise NotImplementedError(
            "transformer_ops task 2.3: not implemented yet; see chapter Inside a transformer layer"
        )

    # ANCHOR_END: rope

    # ANCHOR: silu_mul
    def silu_mul(self, x: Tensor) -> Tensor:
        """silu(gate) * up for x [..., 2 * d] = [gate | up] (Shazeer 2020). Returns [..., d]."""
        # TODO 2.4: your code here (the reference: 2 lines).
        raise NotImplementedError(
            "transformer_ops task 2.4: not implemented yet; see chapter Inside a transformer layer"
        )

    # ANCHOR_END: silu_mul

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
