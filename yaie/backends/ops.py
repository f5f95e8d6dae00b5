"""The operations of a decoder layer, by kernels where there is one."""

import torch
from torch import Tensor

from yaie.core.batch import AttentionSpec
from yaie.core.contracts import TransformerOps
from yaie.core.contracts.kernels import LayerKernels
from yaie.core.gemm import FusedGemm


class KernelOps:
    """See `yaie.core.contracts.TransformerOps`: norms, rotation and activation from lab 9 or 14, and
    attention over gathered keys, for which only lab 5 asks, from lab 2."""

    def __init__(
        self,
        kernels: LayerKernels,
        plain: TransformerOps | None,
        fused: FusedGemm | None = None,
    ) -> None:
        """plain: None if lab 5 is not in use. fused: None if norms and activation run by themselves."""
        self.fused = fused
        self.rms_norm = kernels.rms_norm
        self.fused_add_rms_norm = kernels.fused_add_rms_norm
        self.rope = kernels.rope
        self.silu_mul = kernels.silu_mul
        self._plain = plain

    def causal_mask(
        self, kv_lens: Tensor, tq: int, tk: int, window: int | None, dtype: torch.dtype
    ) -> Tensor:
        return self._ops.causal_mask(kv_lens, tq, tk, window, dtype)

    def attention(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, spec: AttentionSpec
    ) -> Tensor:
        return self._ops.attention(q, k, v, mask, spec)

    @property
    def _ops(self) -> TransformerOps:
        if self._plain is None:
            raise RuntimeError("attention over gathered keys was not asked for")
        return self._plain
