"""The small operations of a layer by the library; see `yaie.core.contracts.TransformerOps`."""

import torch
from torch import Tensor

from yaie.backends.cpu.library import Library
from yaie.core.contracts import TransformerOps
from yaie.core.gemm import FusedGemm

DTYPES = (torch.float32, torch.bfloat16)


class CpuOps:
    """Norms and activation, and `fused` of both with products of few bits; lab 2 computes the rest."""

    def __init__(self, library: Library, plain: TransformerOps, fused: FusedGemm | None) -> None:
        self._library = library
        self.fused = fused
        self._plain = plain
        self.rope = plain.rope
        self.causal_mask = plain.causal_mask
        self.attention = plain.attention

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        if not _can_norm(x, weight):
            return self._plain.rms_norm(x, weight, eps)
        x = x.contiguous()
        out = torch.empty_like(x)
        self._norm(x, None, weight, out, eps)
        return out

    def fused_add_rms_norm(
        self, x: Tensor, residual: Tensor, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        if not _can_norm(x, weight) or residual.dtype != x.dtype:
            return self._plain.fused_add_rms_norm(x, residual, weight, eps)
        x, residual = x.contiguous(), residual.contiguous()
        out = torch.empty_like(x)
        self._norm(x, residual, weight, out, eps)
        return out, residual

    def _norm(
        self, x: Tensor, residual: Tensor | None, weight: Tensor, out: Tensor, eps: float
    ) -> None:
        self._library.rms_norm(
            x.data_ptr(), None if residual is None else residual.data_ptr(), weight.data_ptr(),
            out.data_ptr(), x.numel() // x.shape[-1], x.shape[-1], eps,
            x.dtype == torch.bfloat16, torch.get_num_threads(),
        )  # fmt: skip

    def silu_mul(self, x: Tensor) -> Tensor:
        if x.dtype not in DTYPES:
            return self._plain.silu_mul(x)
        x = x.contiguous()
        width = x.shape[-1] // 2
        out = x.new_empty(*x.shape[:-1], width)
        self._library.silu_mul(
            x.data_ptr(), out.data_ptr(), out.numel() // width, width,
            x.dtype == torch.bfloat16, torch.get_num_threads(),
        )  # fmt: skip
        return out


def _can_norm(x: Tensor, weight: Tensor) -> bool:
    return x.dtype in DTYPES and weight.dtype == x.dtype and weight.is_contiguous()
