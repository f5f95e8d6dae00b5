"""The operations of a layer beside products and attention. Only norms have sums."""

import torch
import triton
from torch import Tensor

from yaie.backends.gemm.kernels import norm_kernel
from yaie.backends.ops import KernelOps
from yaie.core.contracts.kernels import LayerKernels
from yaie.core.gemm import FusedGemm

NORM_WARPS = 4


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm of each row of x [.., d]: a row a program, and the same program however many there are.

    Returns a tensor of its own, contiguous.
    """
    rows = x.reshape(-1, x.shape[-1])
    out = torch.empty(rows.shape, dtype=x.dtype, device=x.device)
    if len(rows):
        norm_kernel[(len(rows),)](
            rows, weight, out, eps, rows.stride(0), K=rows.shape[1],
            BLOCK=triton.next_power_of_2(rows.shape[1]), EARLY=False, num_warps=NORM_WARPS,
        )  # fmt: skip
    return out.view(x.shape)


class InvariantOps(KernelOps):
    """See `KernelOps`. Rotation and activation are lab 9's: they sum nothing."""

    def __init__(self, kernels: LayerKernels, fused: FusedGemm) -> None:
        super().__init__(kernels, None, fused)
        self.rms_norm = norm
        self.fused_add_rms_norm = added


def added(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """(norm of the sum, x + residual [T, d])."""
    total = residual + x
    return norm(total, weight, eps), total
